/* A wall clock that a test can step while a server runs. The library is preloaded into the server. The server's time is
 * the machine's time plus an offset in seconds, a 64-bit number in the file that LEASEHOLD_TEST_CLOCK names. The
 * functions make system calls directly and look up no symbols, because a memory allocator may call them before the
 * program begins. (libfaketime looks up symbols, and Redis with jemalloc does not start under it.) */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *seconds;

__attribute__((constructor)) static void begin(void) {
	const char *path = getenv("LEASEHOLD_TEST_CLOCK");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *page = fd < 0 ? MAP_FAILED : mmap(0, sizeof *seconds, PROT_READ, MAP_SHARED, fd, 0);
	if (page != MAP_FAILED)
		seconds = page;
}

int clock_gettime(clockid_t id, struct timespec *now) {
	int failed = syscall(SYS_clock_gettime, id, now);
	if (!failed && seconds && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
		now->tv_sec += *seconds;
	return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
	struct timespec fine;
	(void)zone;
	clock_gettime(CLOCK_REALTIME, &fine);
	now->tv_sec = fine.tv_sec;
	now->tv_usec = fine.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *also) {
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	if (also)
		*also = now.tv_sec;
	return now.tv_sec;
}
