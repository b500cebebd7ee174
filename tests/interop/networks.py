"""The networks of thinfer in plain PyTorch, under the same parameter names (torchvision's for ResNets)."""

import torch.nn.functional as F
from torch import nn


class Basic(nn.Module):
    expansion = 1

    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = shortcut(inputs, width, stride)

    def forward(self, x):
        h = F.relu(self.bn1(self.conv1(x)))
        h = self.bn2(self.conv2(h))
        return F.relu(h + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.downsample = shortcut(inputs, 4 * width, stride)

    def forward(self, x):
        h = F.relu(self.bn1(self.conv1(x)))
        h = F.relu(self.bn2(self.conv2(h)))
        h = self.bn3(self.conv3(h))
        return F.relu(h + (x if self.downsample is None else self.downsample(x)))


def shortcut(inputs, outputs, stride):
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


class ResNet(nn.Module):
    def __init__(self, block, blocks, small, inputs, classes):
        super().__init__()
        size, stride, padding = (3, 1, 1) if small else (7, 2, 3)
        self.small, self.channels = small, 64
        self.conv1 = nn.Conv2d(inputs, 64, size, stride, padding, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        for stage, count in enumerate(blocks):
            layers = [self.block(block, 64 << stage, 2 if stage and not i else 1) for i in range(count)]
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layers))
        self.fc = nn.Linear(self.channels, classes)

    def block(self, block, width, stride):
        made = block(self.channels, width, stride)
        self.channels = width * block.expansion
        return made

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        if not self.small:
            x = F.max_pool2d(x, 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


class WideBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, stride, 1, bias=False)
        same = stride == 1 and inputs == outputs
        self.shortcut = None if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        h = self.conv1(F.relu(self.bn1(x)))
        h = self.conv2(F.relu(self.bn2(h)))
        return h + (x if self.shortcut is None else self.shortcut(x))


class WideResNet(nn.Module):
    def __init__(self, depth, width, inputs, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, 16, 3, 1, 1, bias=False)
        channels = 16
        for stage in range(3):
            layers = []
            for i in range((depth - 4) // 6):
                outputs = (16 << stage) * width
                layers.append(WideBlock(channels, outputs, 2 if stage and not i else 1))
                channels = outputs
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layers))
        self.bn1 = nn.BatchNorm2d(channels, momentum=0.9)
        self.fc = nn.Linear(channels, classes)

    def forward(self, x):
        x = self.layer3(self.layer2(self.layer1(self.conv1(x))))
        return self.fc(F.relu(self.bn1(x)).mean((2, 3)))


class LeNet(nn.Module):
    def __init__(self, size, inputs, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * ((size // 2 - 4) // 2) ** 2, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc3(F.relu(self.fc2(x)))


def network(name, size, inputs, classes):
    """The network that thinfer calls `name`, for square images."""
    if name == "lenet":
        return LeNet(size, inputs, classes)
    if name.startswith("wrn-"):
        depth, width = map(int, name.split("-")[1:])
        return WideResNet(depth, width, inputs, classes)
    depth = int(name.removeprefix("resnet").removesuffix("-cifar"))
    blocks = {18: [2, 2, 2, 2], 34: [3, 4, 6, 3], 50: [3, 4, 6, 3]}[depth]
    block = Bottleneck if depth == 50 else Basic
    return ResNet(block, blocks, name.endswith("-cifar"), inputs, classes)
