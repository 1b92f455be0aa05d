/* A thread that is cancelled while it is blocked in recv() or poll() ends as cancelled, and its
 * connection goes on. An ordinary program; tests run it plain and under `weft run
 * --sockets=granted`.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { kTurns = 40 };

static int ends[2];
static int cleaned;

static void clean(void* unused) {
  (void)unused;
  ++cleaned;
}

static void* wait_in_recv(void* unused) {
  char octet;
  pthread_cleanup_push(clean, NULL);
  recv(ends[1], &octet, 1, 0);
  pthread_cleanup_pop(0);
  return unused;
}

static void* wait_in_poll(void* unused) {
  struct pollfd one = {ends[1], POLLIN, 0};
  pthread_cleanup_push(clean, NULL);
  poll(&one, 1, -1);
  pthread_cleanup_pop(0);
  return unused;
}

static void* read_all(void* unused) {
  static char octets[4096];
  for (ssize_t n = 1; n > 0 && octets[n - 1] != '.';) n = recv(ends[1], octets, sizeof octets, 0);
  octets[0] = 0;
  return unused;
}

static void* write_on(void* unused) {
  for (;;) {
    if (send(ends[0], "x", 1, MSG_NOSIGNAL) != 1) return unused;
  }
}

/* One that only writes is cancelled, too. Its reader keeps up, so that it never waits. */
static int cancel_writer(void) {
  pthread_t writer;
  pthread_t reader;
  void* result = NULL;
  if (pthread_create(&reader, NULL, read_all, NULL) != 0) return 0;
  if (pthread_create(&writer, NULL, write_on, NULL) != 0) return 0;
  usleep(20000);
  pthread_cancel(writer);
  pthread_join(writer, &result);
  usleep(20000); /* the reader has taken all there was */
  if (send(ends[0], ".", 1, MSG_NOSIGNAL) != 1) return 0;
  pthread_join(reader, NULL);
  return result == PTHREAD_CANCELED;
}

static int exchange(void) {
  char got[5] = "";
  for (int from = 0; from < 2; ++from) {
    if (send(ends[from], "ping", 4, 0) != 4) return 0;
    if (recv(ends[1 - from], got, 4, MSG_WAITALL) != 4 || strcmp(got, "ping") != 0) return 0;
  }
  return 1;
}

static int connect_ends(void) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof at;
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  ends[0] = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(listener, (struct sockaddr*)&at, sizeof at) != 0 || listen(listener, 1) != 0 ||
      getsockname(listener, (struct sockaddr*)&at, &length) != 0 ||
      connect(ends[0], (struct sockaddr*)&at, sizeof at) != 0) {
    return 0;
  }
  ends[1] = accept(listener, NULL, NULL);
  return ends[1] >= 0;
}

int main(void) {
  if (!connect_ends()) {
    perror("connect");
    return 1;
  }
  for (int i = 0; i < kTurns; ++i) {
    pthread_t thread;
    void* result = NULL;
    if (!exchange() || !exchange()) {
      printf("turn %d: other octets\n", i);
      return 1;
    }
    if (pthread_create(&thread, NULL, i % 2 ? wait_in_poll : wait_in_recv, NULL) != 0) return 1;
    usleep(i % 4 < 2 ? 2000 : 0); /* it sleeps, or is on its way */
    pthread_cancel(thread);
    pthread_join(thread, &result);
    if (result != PTHREAD_CANCELED) {
      printf("turn %d: not cancelled\n", i);
      return 1;
    }
  }
  for (int i = 0; i < 20; ++i) {
    if (!cancel_writer() || !exchange()) {
      printf("writer %d: not cancelled, or other octets behind it\n", i);
      return 1;
    }
  }
  printf("%d cancelled, %d cleaned up\n", kTurns, cleaned);
  return 0;
}
