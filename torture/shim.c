/* Makes system calls on files of one folder fail, hang, or do half, as a shared control file says.
 *
 * Loaded by LD_PRELOAD. The calls are made by number, since mmap is called before the linker is
 * done. A failing write or sendfile with error 0 is a short one. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

enum { PWRITE, SYNC, OPEN, RENAME, UNLINK, TRUNCATE, MMAP, SENDFILE, PREAD, KINDS };

struct control {
    int64_t kind;       /* what fails; -1 is nothing */
    int64_t nth;        /* how many others go before it */
    int64_t error;      /* HANG lets it wait until nothing is to fail any more */
    int64_t for_ever;
    int64_t failed;     /* how many have failed */
    int64_t seen[KINDS];
};

enum { HANG = -1 };

/* openat2, which has no function in libc, is called by number; so are our own calls. */
static long raw(long number, long a, long b, long c, long d, long e, long f) {
#if defined(__x86_64__)
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall" : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c, x3 __asm__("x3") = d, x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
    long result = x0;
#else
#error "write how a system call is made here"
#endif
    if (result < 0 && result > -4096) {
        errno = -result;
        return -1;
    }
    return result;
}

static volatile struct control *control;
static const char *base;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("TORTURE_CONTROL");
    base = getenv("TORTURE_BASE");
    int fd = path && base ? syscall(SYS_openat, AT_FDCWD, path, O_RDWR) : -1;
    if (fd < 0) return;
    long at = syscall(SYS_mmap, 0, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at != -1) control = (void *)at;
    syscall(SYS_close, fd);
}

static int is_ours(int fd) {
    char link[64], path[4096];
    if (!control || fd < 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path);
    size_t wanted = strlen(base);
    return length >= (ssize_t)wanted && memcmp(path, base, wanted) == 0;
}

/* Tell whether this call fails: 0, or 1 with errno set. */
static int fails(int kind, int fd) {
    int before = errno;
    int ours = is_ours(fd);
    errno = before;
    if (!ours) return 0;
    int64_t number = __atomic_fetch_add(&control->seen[kind], 1, __ATOMIC_SEQ_CST);
    if (control->kind != kind || number < control->nth) return 0;
    if (!control->for_ever) control->kind = -1;
    __atomic_fetch_add(&control->failed, 1, __ATOMIC_SEQ_CST);
    if (control->error == HANG) {
        while (control->kind == kind) usleep(1000);
        errno = before;
        return 0;
    }
    errno = control->error;
    return 1;
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) {
    if (fails(PWRITE, fd)) {
        if (control->error || size < 2) return -1;
        size /= 2;
    }
    return syscall(SYS_pwrite64, fd, data, size, offset);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    return pwrite64(fd, data, size, offset);
}
ssize_t pread64(int fd, void *data, size_t size, off64_t offset) {
    if (fails(PREAD, fd)) {
        if (control->error || size < 2) return -1;
        size /= 2;
    }
    return syscall(SYS_pread64, fd, data, size, offset);
}
ssize_t pread(int fd, void *data, size_t size, off_t offset) {
    return pread64(fd, data, size, offset);
}
int fsync(int fd) { return fails(SYNC, fd) ? -1 : syscall(SYS_fsync, fd); }
int syncfs(int fd) { return fails(SYNC, fd) ? -1 : syscall(SYS_syncfs, fd); }
int fdatasync(int fd) { return fails(SYNC, fd) ? -1 : syscall(SYS_fdatasync, fd); }
int ftruncate64(int fd, off64_t size) {
    return fails(TRUNCATE, fd) ? -1 : syscall(SYS_ftruncate, fd, size);
}
int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }
int openat64(int folder, const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    return fails(OPEN, folder) ? -1 : syscall(SYS_openat, folder, path, flags, mode);
}
int openat(int folder, const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    return openat64(folder, path, flags, mode);
}
int renameat(int folder, const char *path, int new_folder, const char *new_path) {
    return fails(RENAME, folder) ? -1 : syscall(SYS_renameat, folder, path, new_folder, new_path);
}
int unlinkat(int folder, const char *path, int flags) {
    return fails(UNLINK, folder) ? -1 : syscall(SYS_unlinkat, folder, path, flags);
}
ssize_t sendfile64(int to, int from, off64_t *offset, size_t size) {
    if (fails(SENDFILE, from)) {
        if (control->error || size < 2) return -1;
        size /= 2;
    }
    return syscall(SYS_sendfile, to, from, offset, size);
}
ssize_t sendfile(int to, int from, off_t *offset, size_t size) {
    return sendfile64(to, from, offset, size);
}
void *mmap64(void *at, size_t size, int protection, int flags, int fd, off64_t offset) {
    if (fd >= 0 && fails(MMAP, fd)) return MAP_FAILED;
    return (void *)syscall(SYS_mmap, at, size, protection, flags, fd, offset);
}
long syscall(long number, ...) {
    va_list rest;
    va_start(rest, number);
    long a = va_arg(rest, long), b = va_arg(rest, long), c = va_arg(rest, long);
    long d = va_arg(rest, long), e = va_arg(rest, long), f = va_arg(rest, long);
    va_end(rest);
    if (number == SYS_openat2 && fails(OPEN, (int)a)) return -1;
    return raw(number, a, b, c, d, e, f);
}
void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
    return mmap64(at, size, protection, flags, fd, offset);
}
