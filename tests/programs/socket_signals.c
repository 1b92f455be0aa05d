/* A socket that a signal handler sends on, in the middle of the calls that it interrupts: nothing
 * hangs, and every octet that a call has taken arrives. And a program with many arguments. An
 * ordinary program; tests run it plain and under `weft run --sockets`. */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kSignals = 1000, kBytes = 60000, kPeriodUs = 150 };

static int out;
static volatile sig_atomic_t signals, refused;
static long received;

static void on_alarm(int number) {
  const int error = errno;
  const char octet = 's';
  (void)number;
  ++signals;
  if (send(out, &octet, 1, MSG_DONTWAIT) != 1) ++refused;
  errno = error;
}

static void* drain(void* argument) {
  static char data[kBytes];
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, NULL);
  for (ssize_t n = 1; n > 0; received += n) n = recv(*(int*)argument, data, sizeof data, 0);
  return NULL;
}

static void set_timer(int us) {
  const struct itimerval period = {{0, us}, {0, us}};
  setitimer(ITIMER_REAL, &period, NULL);
}

#define TEN(x) x, x, x, x, x, x, x, x, x, x
#define HUNDRED(x) TEN(x), TEN(x), TEN(x), TEN(x), TEN(x), TEN(x), TEN(x), TEN(x), TEN(x), TEN(x)

/* A program that is started with more arguments than most are. */
static int starts_with_many(void) {
  int status = 1;
  const pid_t child = fork();
  if (child == 0) {
    execl("/bin/sh", "sh", "-c", "test $# = 1199", TEN(HUNDRED("x")), HUNDRED("x"), HUNDRED("x"),
          (char*)NULL);
    _exit(2);
  }
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

int main(void) {
  static char data[kBytes];
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof at;
  const struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
  long sent = 0;
  pthread_t thread;

  out = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(listener, (struct sockaddr*)&at, sizeof at) != 0 || listen(listener, 1) != 0 ||
      getsockname(listener, (struct sockaddr*)&at, &length) != 0 ||
      connect(out, (struct sockaddr*)&at, sizeof at) != 0) {
    perror("connect");
    return 1;
  }
  int in = accept(listener, NULL, NULL);
  pthread_create(&thread, NULL, drain, &in);
  sigaction(SIGALRM, &action, NULL);
  set_timer(kPeriodUs);
  while (signals < kSignals) {
    const ssize_t n = write(out, data, sizeof data);
    if (n < 0 && errno != EINTR && errno != EAGAIN) {
      perror("write");
      return 1;
    }
    if (n > 0) sent += n;
  }
  set_timer(0);
  shutdown(out, SHUT_WR);
  pthread_join(thread, NULL);
  printf("%d signals, %d of their octets refused\n", (int)signals, (int)refused);
  if (!starts_with_many()) {
    puts("a program with many arguments does not start");
    return 1;
  }
  if (received == sent + signals - refused) return 0;
  printf("sent %ld and %d, received %ld\n", sent, (int)(signals - refused), received);
  return 1;
}
