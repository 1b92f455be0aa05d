/* A program that forks while signals come whose handler makes connections and sends on them:
 * nothing hangs, and each octet arrives. An ordinary program; tests run it plain and under `weft
 * run --sockets`. */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kForks = 200, kOctets = 3 };

static struct sockaddr_in at;
static volatile sig_atomic_t connected;
static volatile int forking = 1;
static pthread_t main_thread;
static long received;

static void on_signal(int number) {
  const int error = errno;
  const int out = socket(AF_INET, SOCK_STREAM, 0);
  (void)number;
  if (out >= 0 && connect(out, (struct sockaddr*)&at, sizeof at) == 0) {
    int sent = 0;
    for (int i = 0; i < kOctets; ++i) sent += send(out, "s", 1, 0) == 1;
    connected += sent == kOctets;
  }
  if (out >= 0) close(out);
  errno = error;
}

static void* serve(void* argument) {
  char data[64];
  for (;;) {
    const int in = accept(*(int*)argument, NULL, NULL);
    if (in < 0) return NULL;
    long all = 0;
    for (ssize_t n = 1; n > 0; all += n) n = recv(in, data, sizeof data, 0);
    received += all;
    close(in);
    if (all == 1) return NULL; /* the last one */
  }
}

static void* disturb(void* argument) {
  (void)argument;
  while (forking) {
    pthread_kill(main_thread, SIGUSR1);
    usleep(50);
  }
  return NULL;
}

int main(void) {
  const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
  socklen_t length = sizeof at;
  pthread_t server;
  pthread_t disturber;
  sigset_t usr1;
  int listener = socket(AF_INET, SOCK_STREAM, 0);

  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(listener, (struct sockaddr*)&at, sizeof at) != 0 || listen(listener, 16) != 0 ||
      getsockname(listener, (struct sockaddr*)&at, &length) != 0) {
    perror("listen");
    return 1;
  }
  sigemptyset(&usr1);
  sigaddset(&usr1, SIGUSR1);
  main_thread = pthread_self();
  sigaction(SIGUSR1, &action, NULL);
  pthread_sigmask(SIG_BLOCK, &usr1, NULL);
  pthread_create(&server, NULL, serve, &listener);
  pthread_create(&disturber, NULL, disturb, NULL);
  pthread_sigmask(SIG_UNBLOCK, &usr1, NULL);
  for (int i = 0; i < kForks; ++i) {
    int status = 1;
    const pid_t child = fork();
    if (child == 0) {
      sigset_t blocked;
      pthread_sigmask(SIG_SETMASK, NULL, &blocked);
      _exit(sigismember(&blocked, SIGTERM) ? 2 : 0);
    }
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    if (child < 0 || status != 0) {
      printf("fork %d: %s, status %d\n", i, child < 0 ? "failed" : "ended", status);
      return 1;
    }
  }
  forking = 0;
  pthread_join(disturber, NULL);
  pthread_sigmask(SIG_BLOCK, &usr1, NULL);
  const int last = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(last, (struct sockaddr*)&at, sizeof at) != 0 || send(last, "e", 1, 0) != 1) return 1;
  close(last);
  pthread_join(server, NULL);
  printf("%d connections of a handler, %ld octets\n", (int)connected, received);
  return connected > 0 && received == 1 + kOctets * (long)connected ? 0 : 1;
}
