/* A connection becomes busy while a signal handler might have interrupted malloc: the socket calls
 * that POSIX allows there allocate nothing by it. An ordinary program; tests run it plain and under
 * `weft run --sockets`. */
#include <arpa/inet.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

enum { kTurns = 300 };

void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* at, size_t size);

static __thread volatile int forbidden;

#define SEEN_BY_ALL __attribute__((visibility("default")))

static void look(const char* call) {
  if (!forbidden) return;
  forbidden = 0;
  printf("%s within a socket call\n", call);
  fflush(stdout);
  __builtin_trap(); /* _exit() is a call that Weft sees, and here it is in one */
}

SEEN_BY_ALL void* malloc(size_t size) {
  look("malloc");
  return __libc_malloc(size);
}

SEEN_BY_ALL void* calloc(size_t count, size_t size) {
  look("calloc");
  return __libc_calloc(count, size);
}

SEEN_BY_ALL void* realloc(void* at, size_t size) {
  look("realloc");
  return __libc_realloc(at, size);
}

/* Both ends are this thread's. */
static int talk(void) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof at;
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  const int client = socket(AF_INET, SOCK_STREAM, 0);
  int server;
  int turns = 0;
  char octets[8];

  if (bind(listener, (struct sockaddr*)&at, sizeof at) != 0 || listen(listener, 1) != 0 ||
      getsockname(listener, (struct sockaddr*)&at, &length) != 0 ||
      connect(client, (struct sockaddr*)&at, sizeof at) != 0) {
    return 0;
  }
  server = accept(listener, NULL, NULL);
  while (turns < kTurns && send(client, "ping", 4, 0) == 4 && recv(server, octets, 8, 0) == 4 &&
         write(server, "answer", 6) == 6 && read(client, octets, 8) == 6) {
    ++turns;
  }
  /* None is closed: what Weft keeps of it could serve the next one. */
  return turns;
}

int main(void) {
  int turns;
  /* The first ring of a process starts a thread. */
  if (talk() != kTurns) {
    perror("the first connection");
    return 1;
  }
  forbidden = 1;
  turns = talk();
  forbidden = 0;
  printf("%d turns\n", turns);
  return turns == kTurns ? 0 : 1;
}
