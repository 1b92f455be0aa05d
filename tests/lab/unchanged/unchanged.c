// Programs that do under `weft run --check` what they do without: the argument says which.
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_verbs.h>
#include <rdma/rsocket.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../zoo/zoo.h"
#include "loaded.h"

atomic_int loads;
struct rdma_event_channel* events;

static struct ibv_context* context;

// It fails, so there is a finding.
static void fail(void) {
  struct ibv_pd* pd = ibv_alloc_pd(context);
  must(ibv_reg_mr(pd, (void*)8, 1 << 20, 0) == NULL, "no failure");
  ibv_dealloc_pd(pd);
}

// And one of a rule that counts.
static void destroy_twice(void) {
  struct ibv_cq* cq = ibv_create_cq(context, 4, NULL, NULL, 0);
  ibv_destroy_cq(cq);
  must(ibv_destroy_cq(cq) != 0, "destroyed twice");
}

static void* in_thread(void* (*run)(void*)) {
  pthread_t thread;
  void* result = NULL;
  must(pthread_create(&thread, NULL, run, NULL) == 0, "pthread_create");
  pthread_join(thread, &result);
  return result;
}

// A child has the parent's objects.
static int forked(void) {
  struct ibv_cq* cq = ibv_create_cq(context, 4, NULL, NULL, 0);
  struct ibv_pd* pd = ibv_alloc_pd(context);
  struct ibv_qp_init_attr wanted = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC};
  wanted.cap = (struct ibv_qp_cap){1, 1, 1, 1, 0};
  struct ibv_qp* qp = ibv_create_qp(pd, &wanted);
  struct ibv_recv_wr receive = {.wr_id = 1};
  struct ibv_recv_wr* bad = NULL;
  struct ibv_wc wc;
  int status = 0;
  must(qp != NULL, "ibv_create_qp");
  if (fork() == 0) {
    const int refused = ibv_post_recv(qp, &receive, &bad) != 0;
    _exit(refused && ibv_poll_cq(cq, 1, &wc) <= 0 ? 0 : 1);
  }
  wait(&status);
  ibv_destroy_qp(qp);
  ibv_dealloc_pd(pd);
  ibv_destroy_cq(cq);
  return status;
}

static void leave(int number) { exit(number == SIGALRM ? 7 : 1); }

// The handler of a signal ends a program that prints to somebody who does not read.
static int handler(void) {
  char octets[4096] = {0};
  int ends[2];
  must(pipe(ends) == 0, "pipe");
  const int flags = fcntl(ends[1], F_GETFL);
  fcntl(ends[1], F_SETFL, flags | O_NONBLOCK);
  while (write(ends[1], octets, sizeof octets) > 0) {
  }
  fcntl(ends[1], F_SETFL, flags);
  dup2(ends[1], 2);
  signal(SIGALRM, leave);
  alarm(1);
  fail();
  pause();
  return 1;
}

static void* read_on(void* none) {
  getchar();
  return none;
}

// A thread is in the C library's stdin for ever.
static int reader(void) {
  pthread_t thread;
  must(pthread_create(&thread, NULL, read_on, NULL) == 0, "pthread_create");
  usleep(100000);  // it most likely sleeps by then
  destroy_twice();
  return 0;
}

static void* ask_to_end(void* none) {
  int before = 0;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
  pthread_cancel(pthread_self());
  pthread_setcancelstate(before, &before);
  fail();
  destroy_twice();
  return &context;
  (void)none;
}

// Not cancelled in calls that do not sleep.
static int cancelled(void) { return in_thread(ask_to_end) == &context ? 0 : 1; }

// The program closes what is not its own, and gets the number for a file.
static int reused(void) {
  struct stat is;
  fail();
  for (int fd = 3; fd < 64; ++fd) {
    char link[64], name[256] = {0};
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, name, sizeof name - 1) > 0 && strstr(name, ".jsonl") != NULL) close(fd);
  }
  FILE* mine = tmpfile();
  must(mine != NULL, "tmpfile");
  destroy_twice();
  fstat(fileno(mine), &is);
  return is.st_size == 0 ? 0 : 1;
}

static int broken_pipe(void) {
  int ends[2];
  must(pipe(ends) == 0, "pipe");
  dup2(ends[1], 2);
  close(ends[0]);
  fail();
  return 0;
}

static int open_descriptors(void) {
  DIR* folder = opendir("/proc/self/fd");
  int count = 0;
  must(folder != NULL, "opendir");
  while (readdir(folder) != NULL) ++count;
  closedir(folder);
  return count;
}

static void make_and_destroy(void) {
  struct rdma_cm_id* id = NULL;
  must(rdma_create_id(events, &id, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
  must(rdma_destroy_id(id) == 0, "rdma_destroy_id");
}

// Ids that have a channel of their own, and channels, are given back.
static int descriptors(void) {
  make_and_destroy();
  const int before = open_descriptors();
  for (int i = 0; i < 50; ++i) {
    make_and_destroy();
    events = rdma_create_event_channel();
    must(events != NULL, "rdma_create_event_channel");
    make_and_destroy();
    rdma_destroy_event_channel(events);
    events = NULL;
  }
  return open_descriptors() <= before + 5 ? 0 : 1;
}

static void* make_until_loaded(void* none) {
  while (atomic_load(&loads) == 0) {
  }
  for (int i = 0; i < 500; ++i) make_and_destroy();
  return none;
}

// A constructor of a library that is being loaded calls while another thread does.
static int loading(void) {
  pthread_t thread;
  events = rdma_create_event_channel();
  make_and_destroy();
  must(pthread_create(&thread, NULL, make_until_loaded, NULL) == 0, "pthread_create");
  must(dlopen(getenv("LOADED"), RTLD_NOW) != NULL, "dlopen");
  pthread_join(thread, NULL);
  rdma_destroy_event_channel(events);
  return 0;
}

static int failing(void) {
  fail();
  return 0;
}

// A call that goes on in the background has not failed.
static int goes_on(void) {
  struct sockaddr_in at;
  socklen_t size = sizeof at;
  memset(&at, 0, sizeof at);
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int listener = rsocket(AF_INET, SOCK_STREAM, 0);
  const int caller = rsocket(AF_INET, SOCK_STREAM, 0);
  must(rbind(listener, (struct sockaddr*)&at, sizeof at) == 0, "rbind");
  must(rlisten(listener, 1) == 0, "rlisten");
  must(rgetsockname(listener, (struct sockaddr*)&at, &size) == 0, "rgetsockname");
  must(rfcntl(caller, F_SETFL, O_NONBLOCK) == 0, "rfcntl");
  must(rconnect(caller, (struct sockaddr*)&at, sizeof at) != 0, "connected at once");
  must(errno == EINPROGRESS, "rconnect");
  rclose(caller);
  rclose(listener);
  return 0;
}

// No room is left for the report.
static int full(void) {
  const char* folder = getenv("WEFT_CHECK_REPORT");
  char name[256];
  snprintf(name, sizeof name, "%s/%d.jsonl", folder != NULL ? folder : "", getpid());
  if (folder != NULL) must(symlink("/dev/full", name) == 0, "symlink");
  fail();
  return 0;
}

// A process that may not look at memory by that call.
static void forbid_reading(void) {
  struct sock_filter steps[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const struct sock_fprog filter = {4, steps};
  must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "PR_SET_NO_NEW_PRIVS");
  must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0, "PR_SET_SECCOMP");
}

// The memory of a Send can't be read meanwhile, but is there.
static int protected_memory(void) {
  enum { kSize = 4096 };
  struct pair p = connect_pair(4);
  char* memory = mmap(NULL, 2 * kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  must(memory != MAP_FAILED, "mmap");
  struct ibv_mr* from = ibv_reg_mr(p.client->pd, memory, kSize, 0);
  struct ibv_mr* to = ibv_reg_mr(p.server->pd, memory + kSize, kSize, IBV_ACCESS_LOCAL_WRITE);
  must(from != NULL && to != NULL, "ibv_reg_mr");
  for (int i = 0; i < 2; ++i) {
    struct ibv_sge source = {(uintptr_t)memory, 64, from->lkey};
    struct ibv_sge sink = {(uintptr_t)memory + kSize, 64, to->lkey};
    struct ibv_recv_wr receive = {.sg_list = &sink, .num_sge = 1}, *bad_receive;
    struct ibv_send_wr send = {.sg_list = &source, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
    send.send_flags = IBV_SEND_SIGNALED;
    must(ibv_post_recv(p.server->qp, &receive, &bad_receive) == 0, "ibv_post_recv");
    must(ibv_post_send(p.client->qp, &send, &bad) == 0, "ibv_post_send");
    poll_one(p.server->recv_cq);
    if (i == 0) must(mprotect(memory, kSize, PROT_NONE) == 0, "mprotect");
    if (i == 1) forbid_reading();
    errno = 0;
    poll_one(p.client->send_cq);
    must(errno == 0, "errno");
    must(mprotect(memory, kSize, PROT_READ | PROT_WRITE) == 0, "mprotect");
  }
  ibv_dereg_mr(from);
  ibv_dereg_mr(to);
  end_pair(&p);
  return 0;
}

// The list behind a request that is refused is not looked at, nor that of one without memory.
static int refused(void) {
  struct pair p = connect_pair(4);
  struct ibv_send_wr wr, *bad = NULL;
  memset(&wr, 0, sizeof wr);
  wr.opcode = (enum ibv_wr_opcode)99;
  wr.next = (struct ibv_send_wr*)16;
  must(ibv_post_send(p.client->qp, &wr, &bad) != 0 && bad == &wr, "not refused");
  wr.opcode = IBV_WR_LOCAL_INV;
  wr.next = NULL;
  wr.sg_list = (struct ibv_sge*)16;
  wr.num_sge = 1;
  ibv_post_send(p.client->qp, &wr, &bad);
  end_pair(&p);
  return 0;
}

// A field of a completion is read, and its queue pair can be destroyed all the same.
static int source(void) {
  struct ibv_context** devices = rdma_get_devices(NULL);
  struct ibv_cq_init_attr_ex attr = {.cqe = 4, .wc_flags = IBV_WC_EX_WITH_SRC_QP};
  struct ibv_poll_cq_attr none = {0};
  static uint64_t pair[2];
  must(devices != NULL && devices[0] != NULL, "rdma_get_devices");
  struct ibv_cq_ex* cq = ibv_create_cq_ex(devices[0], &attr);
  must(cq != NULL, "ibv_create_cq_ex");
  struct pair p = connect_pair_to(4, 0, ibv_cq_ex_to_cq(cq));
  struct ibv_mr* mr =
      ibv_reg_mr(p.client->pd, pair, sizeof pair, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  must(mr != NULL, "ibv_reg_mr");
  must(rdma_post_write(p.client, NULL, pair, 8, mr, IBV_SEND_SIGNALED, (uintptr_t)&pair[1],
                       mr->rkey) == 0,
       "rdma_post_write");
  while (ibv_start_poll(cq, &none) != 0) {
  }
  must(cq->status == IBV_WC_SUCCESS, "the Write");
  must(ibv_wc_read_src_qp(cq) == 0, "ibv_wc_read_src_qp");
  ibv_end_poll(cq);
  ibv_dereg_mr(mr);
  end_pair(&p);
  ibv_destroy_cq(ibv_cq_ex_to_cq(cq));
  rdma_free_devices(devices);
  return 0;
}

// A connection whose client writes into words[1] what is in words[0].
static struct pair polled;
static struct ibv_mr* of_words;
static volatile uint64_t words[4];

static void connect_words(struct ibv_cq* cq) {
  polled = connect_pair_to(4, 0, cq);
  of_words = ibv_reg_mr(polled.client->pd, (void*)words, sizeof words,
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  must(of_words != NULL, "ibv_reg_mr");
}

static void write_from(struct rdma_cm_id* id, uint64_t value) {
  words[0] = value;
  must(rdma_post_write(id, NULL, (void*)words, 8, of_words, IBV_SEND_SIGNALED, (uintptr_t)&words[1],
                       of_words->rkey) == 0,
       "rdma_post_write");
}

// Without a stderr its number is a connection's.
static int connection(void) {
  char octet = 0;
  int ends[2];
  must(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair");
  dup2(ends[1], 2);
  fail();
  connect_words(NULL);
  for (int i = 0; i < 20; ++i) {
    write_from(polled.client, 1);
    poll_one(polled.client->send_cq);
  }
  struct ibv_mr* another = ibv_reg_mr(polled.client->pd, (void*)words, sizeof words, 0);
  if (another != NULL) ibv_dereg_mr(another);
  ibv_dereg_mr(of_words);
  end_pair(&polled);
  return recv(ends[0], &octet, 1, MSG_DONTWAIT) < 0 ? 0 : 1;
}

// A thread polls what was there when another one arms the queue, or was not any more; then it makes
// the event that the other one waits for. Not before the queue is armed: it would make none.
enum { kRounds = 300 };
static atomic_int begun, is_armed, ended;  // rounds

static void await(atomic_int* rounds, int count) {
  while (atomic_load(rounds) < count) sched_yield();
}

static void* poll_elsewhere(void* none) {
  for (int i = 1; i <= kRounds; ++i) {
    await(&begun, i);
    poll_one(polled.client->send_cq);
    await(&is_armed, i);
    atomic_store(&ended, i);
    write_from(polled.client, 0);
  }
  return none;
}

static int armed(void) {
  pthread_t thread;
  connect_words(NULL);
  must(pthread_create(&thread, NULL, poll_elsewhere, NULL) == 0, "pthread_create");
  for (int i = 1; i <= kRounds; ++i) {
    struct ibv_cq* cq = polled.client->send_cq;
    void* unused;
    write_from(polled.client, 1);
    while (words[1] != 1) {
    }
    atomic_store(&begun, i);
    must(ibv_req_notify_cq(cq, 0) == 0, "ibv_req_notify_cq");
    atomic_store(&is_armed, i);
    await(&ended, i);
    must(ibv_get_cq_event(polled.client->send_cq_channel, &cq, &unused) == 0, "get event");
    ibv_ack_cq_events(cq, 1);
    poll_one(cq);
    while (words[1] != 0) {  // a completion says that TCP has it, not that it is there
    }
  }
  pthread_join(thread, NULL);
  ibv_dereg_mr(of_words);
  end_pair(&polled);
  return 0;
}

static void* write_once_main_sleeps(void* none) {
  char name[64], text[256], state = 0;
  snprintf(name, sizeof name, "/proc/self/task/%d/stat", getpid());
  while (state != 'S') {
    FILE* file = fopen(name, "r");
    must(file != NULL && fgets(text, sizeof text, file) != NULL, "stat");
    fclose(file);
    state = strrchr(text, ')')[2];
  }
  write_from(polled.client, 3);
  return none;
}

static void take_event(struct ibv_comp_channel* of, const struct ibv_cq* wanted) {
  struct ibv_cq* cq;
  void* unused;
  must(ibv_get_cq_event(of, &cq, &unused) == 0 && cq == wanted, "ibv_get_cq_event");
  ibv_ack_cq_events(cq, 1);
}

// One that was armed again before its event was taken makes another one, and the program waits for
// that: not for the queue which had something when it was armed.
static int armed_twice(void) {
  struct ibv_context** devices = rdma_get_devices(NULL);
  struct ibv_comp_channel* both = ibv_create_comp_channel(devices[0]);
  struct ibv_cq* one = ibv_create_cq(devices[0], 4, NULL, both, 0);
  struct ibv_cq* twice = ibv_create_cq(devices[0], 4, NULL, both, 0);
  must(one != NULL && twice != NULL, "ibv_create_cq");
  struct pair p = connect_pair_to(4, 0, one);
  connect_words(twice);
  must(ibv_req_notify_cq(twice, 0) == 0, "ibv_req_notify_cq");
  write_from(polled.client, 1);
  struct pollfd ready = {both->fd, POLLIN, 0};
  must(poll(&ready, 1, -1) == 1, "poll");
  must(ibv_req_notify_cq(twice, 0) == 0, "ibv_req_notify_cq");
  poll_one(twice);
  must(rdma_post_recv(p.client, NULL, (void*)&words[2], 8, of_words) == 0, "rdma_post_recv");
  must(rdma_post_send(p.server, NULL, (void*)&words[3], 8, of_words, 0) == 0, "rdma_post_send");
  write_from(p.server, 2);
  while (words[1] != 2) {
  }
  poll_one(p.server->send_cq);
  must(ibv_req_notify_cq(one, 0) == 0, "ibv_req_notify_cq");
  take_event(both, twice);
  pthread_t thread;
  must(pthread_create(&thread, NULL, write_once_main_sleeps, NULL) == 0, "pthread_create");
  take_event(both, twice);
  pthread_join(thread, NULL);
  poll_one(twice);
  poll_one(one);
  while (words[1] != 3) {
  }
  ibv_dereg_mr(of_words);
  end_pair(&p);
  end_pair(&polled);
  ibv_destroy_cq(one);
  ibv_destroy_cq(twice);
  return 0;
}

static int limited(void) {
  const struct rlimit none = {0, 0};
  must(setrlimit(RLIMIT_FSIZE, &none) == 0, "setrlimit");
  fail();
  return 0;
}

int main(int count, char** arguments) {
  static const struct {
    const char* name;
    int (*run)(void);
  } kinds[] = {{"forked", forked},
               {"handler", handler},
               {"reader", reader},
               {"cancelled", cancelled},
               {"reused", reused},
               {"broken_pipe", broken_pipe},
               {"connection", connection},
               {"descriptors", descriptors},
               {"loading", loading},
               {"offline", failing},
               {"full", full},
               {"limited", limited},
               {"source", source},
               {"armed", armed},
               {"armed_twice", armed_twice},
               {"protected_memory", protected_memory},
               {"refused", refused},
               {"goes_on", goes_on}};
  must(count == 2, "usage");
  context = open_first();
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; ++i) {
    if (strcmp(kinds[i].name, arguments[1]) == 0) return kinds[i].run();
  }
  return 2;
}
