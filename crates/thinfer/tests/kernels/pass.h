// Sections: weights, forward, bf16 copy, gradient, two state buffers, marks, table, step, factor, and
// the numbers that key the noise. A GPU passes over arguments that a kernel does not have.
#ifdef TAKES_ORIGIN
#define ORIGIN , at(10)
#else
#define ORIGIN
#endif
int main(int, char** path) {
    auto s = read_sections(path[1]);
    auto at = [&](int i) { return Any{s[i].empty() ? nullptr : s[i].data()}; };
    unsigned n = s[0].size() / 4;
    launch(3, 64, [&] { ENTRY(at(0), at(1), at(2), at(3), at(4), at(5), at(6), n, at(7), at(8), at(9) ORIGIN); });
    write_sections(path[2], s);
}
