// Sections: locations and pre-scales, what makes the scales, the step, scales, slopes, sizes, x, y, bias.
int main(int, char** path) {
    auto s = read_sections(path[1]);
    auto at = [&](int i) { return Any{s[i].empty() ? nullptr : s[i].data()}; };
    Sizes z;
    memcpy(&z, s[5].data(), sizeof z);
    launch(2, 32, [&] { vary_draw(at(0), at(1), at(2), at(3), at(4), z); });
    launch(3, 32, [&] { vary_forward(at(6), at(7), at(3), at(8), at(1), z, s[6].size() / 4 / V); });
    write_sections(path[2], s);
}
