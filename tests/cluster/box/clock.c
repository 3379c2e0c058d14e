/* Shifts the clock of a process by CLOCK_OFFSET seconds, as a preloaded library. Monotonic clocks, which timers use, stay. */

#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *result) {
  const char *offset = getenv("CLOCK_OFFSET");
  int code = syscall(SYS_clock_gettime, clock, result);
  if (offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) result->tv_sec += atol(offset);
  return code;
}

int gettimeofday(struct timeval *result, void *zone) {
  struct timespec now;
  int code = clock_gettime(CLOCK_REALTIME, &now);
  result->tv_sec = now.tv_sec;
  result->tv_usec = now.tv_nsec / 1000;
  return code;
}

time_t time(time_t *result) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (result) *result = now.tv_sec;
  return now.tv_sec;
}
