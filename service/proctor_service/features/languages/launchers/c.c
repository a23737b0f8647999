/* Runs the program's own `main`; descriptor 3 holds the word that proves the return from it.
   The linker puts `__wrap_main` before `main`. */
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
int __real_main(int, char **, char **);

static char word[64];
static long size;

static int end(int flags) { return (__open ? __open : open)("/proc/self/fd/3", flags); }

static void take(void) {
  size = (__read ? __read : read)(3, word, sizeof word - 1);
  end(01001); /* O_WRONLY | O_TRUNC */
}
__attribute__((section(".preinit_array"), used)) static void (*const first)(void) = take;

int __wrap_main(int count, char **arguments, char **environment) {
  int code = __real_main(count, arguments, environment);
  if (code == 0 && size > 0) {
    word[size] = '\n';
    (void)!(__write ? __write : write)(end(1), word, size + 1);
  }
  return code;
}
#ifdef __cplusplus
}
#endif
