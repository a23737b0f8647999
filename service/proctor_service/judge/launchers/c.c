/* Runs the program's own `main`; descriptor 3 holds the word that proves the return from it.
   The linker puts `__wrap_main` before `main`. A failed `assert` is recorded, whatever becomes of its signal. */
#ifdef __cplusplus
extern "C" {
#endif
/* Names that no program defines, since one with its own `read` is common. musl has the plain ones alone. */
int open(const char *, int, ...);
long read(int, void *, unsigned long);
long write(int, const void *, unsigned long);
int __open(const char *, int, ...) __attribute__((weak));
long __read(int, void *, unsigned long) __attribute__((weak));
long __write(int, const void *, unsigned long) __attribute__((weak));
void abort(void) __attribute__((noreturn));
int __real_main(int, char **, char **);

static char word[64];
static long size;
static int failed;

static int end(int flags) { return (__open ? __open : open)("/proc/self/fd/3", flags); }

static void put(int descriptor, const char *text, long length) {
  (void)!(__write ? __write : write)(descriptor, text, length);
}

static void say(const char *text) {
  long length = 0;
  while (text[length]) length++;
  put(2, text, length);
}

static void take(void) {
  size = (__read ? __read : read)(3, word, sizeof word - 1);
  end(01001); /* O_WRONLY | O_TRUNC */
}
__attribute__((section(".preinit_array"), used)) static void (*const first)(void) = take;

void __assert_fail(const char *text, const char *file, unsigned line, const char *function) {
  failed = 1;
  (void)line;
  say(file);
  say(": ");
  say(function);
  say(": Assertion `");
  say(text);
  say("' failed.\n");
  abort();
}

int __wrap_main(int count, char **arguments, char **environment) {
  int code = __real_main(count, arguments, environment);
  if (code == 0 && !failed && size > 0) {
    word[size] = '\n';
    put(end(1), word, size + 1);
  }
  return code;
}
#ifdef __cplusplus
}
#endif
