// Sections: gradient, marks, partial sums, the limit, factor, count of clipped steps.
int main(int, char** path) {
    auto s = read_sections(path[1]);
    auto at = [&](int i) { return Any{s[i].data()}; };
    unsigned n = s[0].size() / 4, blocks = s[2].size() / 8;
    double most;
    memcpy(&most, s[3].data(), 8);
    launch(blocks, 1, [&] { clip_partial(at(0), at(1), n, at(2), 1u, 4u); });
    launch(1, 1, [&] { clip_factor(at(2), blocks, most, at(4), at(5)); });
    write_sections(path[2], s);
}
