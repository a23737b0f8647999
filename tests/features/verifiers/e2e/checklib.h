// Small header for checkers in the convention of testlib.h, for the problems of checker_problems.toml.
#pragma once
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <string>

enum Result { _ok = 0, _wa = 1, _pe = 2, _fail = 3, _points = 7 };

[[noreturn]] inline void quitf(Result result, const char *text) {
    fprintf(stderr, "%s%s\n", result == _ok ? "ok " : "wrong answer ", text);
    exit(result);
}

[[noreturn]] inline void quitp(double points, const char *text) {
    fprintf(stderr, "points %.10f %s\n", points, text);
    exit(_points);
}

struct Stream {
    FILE *file = nullptr;
    Result blame = _fail;

    std::string readWord() {
        std::string word;
        int c = getc(file);
        while (isspace(c)) c = getc(file);
        for (; c != EOF && !isspace(c); c = getc(file)) word += char(c);
        if (c != EOF) ungetc(c, file);
        if (word.empty()) quitf(blame, "unexpected end of file");
        return word;
    }

    long long readLong(long long least, long long most) {
        std::string word = readWord();
        char *end = nullptr;
        long long value = strtoll(word.c_str(), &end, 10);
        if (*end || word.size() > 19 || value < least || value > most) quitf(blame, "no such integer");
        return value;
    }

    double readDouble() {
        std::string word = readWord();
        char *end = nullptr;
        double value = strtod(word.c_str(), &end);
        if (*end || value != value) quitf(blame, "no number");
        return value;
    }

    bool seekEof() {
        int c = getc(file);
        while (isspace(c)) c = getc(file);
        if (c != EOF) ungetc(c, file);
        return c == EOF;
    }
};

static Stream inf, ouf, ans;

inline void registerTestlibCmd(int count, char **paths) {
    if (count < 4) quitf(_fail, "three paths are needed");
    inf.file = fopen(paths[1], "rb");
    ouf.file = fopen(paths[2], "rb");
    ans.file = fopen(paths[3], "rb");
    ouf.blame = _wa;
    if (!inf.file || !ouf.file || !ans.file) quitf(_fail, "a file is missing");
}

inline void finish(const char *text) {
    if (!ouf.seekEof()) quitf(_wa, "there is more output");
    quitf(_ok, text);
}
