use serde::{Deserialize, Serialize};

/// What a parameter does in its layer. Priors and pruning treat roles differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Weights of a linear layer, stored output by input.
    LinearWeight,
    /// Weights of a convolution, stored output, kernel row, kernel column, input.
    ConvWeight,
    /// A bias.
    Bias,
    /// The scale of a batch norm.
    NormScale,
    /// The shift of a batch norm.
    NormShift,
    /// The running mean of a batch norm; a statistic, not a parameter.
    RunningMean,
    /// The running variance of a batch norm; a statistic, not a parameter.
    RunningVariance,
    /// Location and pre-scale of random channel scales, stored member by channel by these two.
    RandomScale,
    /// The logarithm of a learned noise standard deviation.
    LogScale,
}

impl Role {
    /// Whether the parameter holds the weights of a layer, which can be grouped and pruned.
    pub fn is_weight(self) -> bool {
        matches!(self, Role::LinearWeight | Role::ConvWeight)
    }
}

/// One named tensor inside the flat buffers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Param {
    /// Its name, `layer.weight` or `layer.bias` as in PyTorch.
    pub name: String,
    /// Its shape, outermost axis first; weights are stored output by input.
    pub shape: Vec<usize>,
    /// What it does.
    pub role: Role,
    /// Where it starts in every flat buffer.
    pub offset: usize,
}

impl Param {
    /// How many numbers it holds.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether it holds none, which a valid network never has.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its place in a flat buffer.
    pub fn range(&self) -> std::ops::Range<usize> {
        self.offset..self.offset + self.len()
    }

    /// How many inputs feed one output: the bound of the default initialisation is 1/√fan_in.
    pub fn fan_in(&self) -> usize {
        self.shape.iter().skip(1).product()
    }
}

/// All parameters of a network in the order of the flat buffers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParamTable {
    params: Vec<Param>,
}

impl ParamTable {
    pub(crate) fn push(&mut self, name: String, shape: Vec<usize>, role: Role) -> usize {
        let offset = self.len();
        self.params.push(Param { name, shape, role, offset });
        self.params.len() - 1
    }

    /// How many numbers all parameters hold together.
    pub fn len(&self) -> usize {
        self.params.last().map_or(0, |p| p.range().end)
    }

    /// Whether the network has no parameters.
    pub fn is_empty(&self) -> bool {
        self.params.is_empty()
    }

    /// The parameters, in the order of their offsets.
    pub fn iter(&self) -> std::slice::Iter<'_, Param> {
        self.params.iter()
    }

    /// The parameter called `name`.
    pub fn find(&self, name: &str) -> Option<&Param> {
        self.params.iter().find(|p| p.name == name)
    }

    /// The parameter that owns `index` of the flat buffers.
    pub fn owner(&self, index: usize) -> Option<&Param> {
        self.params.iter().find(|p| p.range().contains(&index))
    }
}

impl std::ops::Index<usize> for ParamTable {
    type Output = Param;
    fn index(&self, at: usize) -> &Param {
        &self.params[at]
    }
}

impl<'a> IntoIterator for &'a ParamTable {
    type Item = &'a Param;
    type IntoIter = std::slice::Iter<'a, Param>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
