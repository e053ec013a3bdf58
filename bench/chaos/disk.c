/* Preloaded into a process, it makes a bad disk of a good one, as the file named by $BAD_DISK says: while that is there
 * every write to a regular file fails as on a full disk; if it has a number in it, flushes take so many milliseconds
 * instead. What the process says on its standard streams is written all the same. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* -1: a good disk; 0: a full one; else how long a flush takes. */
static long state(void) {
    const char *path = getenv("BAD_DISK");
    int file = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return -1;
    char text[16] = {0};
    long length = syscall(SYS_read, file, text, sizeof text - 1);
    syscall(SYS_close, file);
    return length > 0 ? atol(text) : 0;
}

static int is_full(int file) {
    struct stat about;
    int error = errno;
    int full = file > 2 && !fstat(file, &about) && S_ISREG(about.st_mode) && state() == 0;
    errno = full ? ENOSPC : error;
    return full;
}

ssize_t write(int file, const void *bytes, size_t length) {
    return is_full(file) ? -1 : syscall(SYS_write, file, bytes, length);
}

ssize_t pwrite64(int file, const void *bytes, size_t length, off_t at) {
    return is_full(file) ? -1 : syscall(SYS_pwrite64, file, bytes, length, at);
}

static void dawdle(void) {
    long millis = state();
    if (millis > 0) usleep((useconds_t)(millis * 1000));
}

int fdatasync(int file) {
    dawdle();
    return (int)syscall(SYS_fdatasync, file);
}

int fsync(int file) {
    dawdle();
    return (int)syscall(SYS_fsync, file);
}
