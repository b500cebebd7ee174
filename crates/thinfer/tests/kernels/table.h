// Sections: inputs, outcomes, order, step, output, targets, then batch, columns, target columns.
int main(int, char** path) {
    auto s = read_sections(path[1]);
    auto at = [&](int i) { return Any{s[i].data()}; };
    unsigned size[3];
    memcpy(size, s[6].data(), sizeof size);
    launch(4, 64, [&] { gather_table(at(0), at(1), at(2), at(3), at(4), at(5), size[0], size[1], size[1], size[2]); });
    write_sections(path[2], s);
}
