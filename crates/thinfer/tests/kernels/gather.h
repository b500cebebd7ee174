// Sections: images, labels, order, step, key, output, targets, settings.
int main(int, char** path) {
    auto s = read_sections(path[1]);
    auto at = [&](int i) { return Any{s[i].data()}; };
    ImageBatch b;
    memcpy(&b, s[7].data(), sizeof b);
    unsigned threads = b.batch * b.height * b.width;
    launch((threads + 63) / 64, 64, [&] { gather_images(at(0), at(1), at(2), at(3), at(4), at(5), at(6), b); });
    write_sections(path[2], s);
}
