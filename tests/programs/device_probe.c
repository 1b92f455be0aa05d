/* What a plain verbs program sees of its devices, a line for each thing. Nothing of Weft.
 *
 *   device_probe gids               each device, its port, its GID table
 *   device_probe again FIFO         the same for each line that comes there, until that ends
 *   device_probe sandboxed          the same as gids, where nobody may ask for interfaces
 *   device_probe bind ADDRESS...    the device of an id that is bound there, and its GID
 *   device_probe resolve ADDRESS... of one that is to be connected there
 *   device_probe serve COUNT        of the ids of requests; prints "port N" first
 *   device_probe call PORT ADDRESS...   asks there, each refused
 *   device_probe mixed              a queue pair from objects of two devices
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static const char* gid_text(const union ibv_gid* gid) {
  static char text[INET6_ADDRSTRLEN];
  return inet_ntop(AF_INET6, gid->raw, text, sizeof text);
}

static void show_index(struct ibv_context* context, int index) {
  struct ibv_gid_entry entry;
  union ibv_gid gid;
  int plain = ibv_query_gid(context, 1, index, &gid);
  int error = ibv_query_gid_ex(context, 1, (uint32_t)index, &entry, 0);
  printf("  gid %d: %s %s", index, plain == 0 ? gid_text(&gid) : strerror(errno),
         error == 0 ? "" : strerror(error));
  if (error == 0) printf("type %u interface %u", entry.gid_type, entry.ndev_ifindex);
  printf("\n");
}

static void show_device(struct ibv_device* device) {
  struct ibv_context* context = ibv_open_device(device);
  if (!context) {
    printf("%s: %s\n", ibv_get_device_name(device), strerror(errno));
    return;
  }
  struct ibv_port_attr port;
  struct ibv_gid_entry table[8];
  ibv_query_port(context, 1, &port);
  printf("%s %p: guid %016llx, %s, table of %d with %d\n", ibv_get_device_name(device),
         (void*)device, (unsigned long long)be64toh(ibv_get_device_guid(device)),
         ibv_port_state_str(port.state), port.gid_tbl_len,
         (int)ibv_query_gid_table(context, table, 8, 0));
  for (int i = 0; i < 6; ++i) show_index(context, i);
  show_index(context, port.gid_tbl_len);
  ibv_close_device(context);
}

static void show_devices(void) {
  int count = 0;
  struct ibv_device** list = ibv_get_device_list(&count);
  printf("%d devices\n", count);
  for (int i = 0; i < count; ++i) show_device(list[i]);
  if (list) ibv_free_device_list(list);
  printf("end\n");
  fflush(stdout);
}

/* From now on there are no netlink sockets. */
static void forbid_netlink(void) {
  struct sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_socket, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_NETLINK, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof rules / sizeof rules[0], rules};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    exit(2);
  }
}

static void show_id(const char* what, struct rdma_cm_id* id) {
  const union ibv_gid* gid = (const union ibv_gid*)&id->route.addr.addr.ibaddr.sgid;
  printf("%s: %s %s\n", what, id->verbs ? ibv_get_device_name(id->verbs->device) : "no device",
         gid_text(gid));
  fflush(stdout);
}

static struct rdma_addrinfo* find(const char* address, const char* port, int flags) {
  struct rdma_addrinfo hints = {.ai_flags = flags, .ai_port_space = RDMA_PS_TCP};
  struct rdma_addrinfo* found = NULL;
  if (rdma_getaddrinfo(address, port, &hints, &found) != 0) exit(2);
  return found;
}

static void bind_or_resolve(const char* address, int bind) {
  struct rdma_addrinfo* found = find(address, "0", bind ? RAI_PASSIVE : 0);
  struct rdma_cm_id* id;
  if (rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) != 0) exit(2);
  int error = bind ? rdma_bind_addr(id, found->ai_src_addr)
                   : rdma_resolve_addr(id, NULL, found->ai_dst_addr, 2000);
  if (error != 0) {
    printf("%s: %s\n", address, strerror(errno));
  } else {
    show_id(address, id);
  }
  rdma_destroy_id(id);
  rdma_freeaddrinfo(found);
}

static void serve(int count) {
  struct rdma_cm_id *listener, *child;
  struct sockaddr_in6 any = {.sin6_family = AF_INET6};
  if (rdma_create_id(NULL, &listener, NULL, RDMA_PS_TCP) != 0 ||
      rdma_bind_addr(listener, (struct sockaddr*)&any) != 0 || rdma_listen(listener, 8) != 0) {
    exit(2);
  }
  printf("port %d\n", ntohs(rdma_get_src_port(listener)));
  fflush(stdout);
  for (int i = 0; i < count; ++i) {
    if (rdma_get_request(listener, &child) != 0) exit(2);
    show_id("request", child);
    rdma_reject(child, NULL, 0);
    rdma_destroy_id(child);
  }
  rdma_destroy_id(listener);
}

static void call(const char* address, const char* port) {
  struct rdma_addrinfo* found = find(address, port, 0);
  struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};
  struct rdma_conn_param params = {0};
  struct rdma_cm_id* id;
  if (rdma_create_ep(&id, found, NULL, &attr) != 0) {
    printf("%s: %s\n", address, strerror(errno));
  } else {
    show_id(address, id);
    int connected = rdma_connect(id, &params);
    printf("%s: %s\n", address, connected == 0 ? "connected" : strerror(errno));
    rdma_destroy_ep(id);
  }
  rdma_freeaddrinfo(found);
}

static void mix(void) {
  int count = 0;
  struct ibv_device** list = ibv_get_device_list(&count);
  if (count != 2) exit(2);
  struct ibv_context* one = ibv_open_device(list[0]);
  struct ibv_context* other = ibv_open_device(list[1]);
  struct ibv_pd* pd = ibv_alloc_pd(one);
  struct ibv_cq* cq = ibv_create_cq(other, 1, NULL, NULL, 0);
  struct ibv_qp_init_attr attr = {
      .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};
  errno = 0;
  struct ibv_qp* qp = ibv_create_qp(pd, &attr);
  printf("mixed: %s\n", qp ? "made" : strerror(errno));
}

int main(int argc, char** argv) {
  char line[16];
  if (argc < 2) return 2;
  if (strcmp(argv[1], "gids") == 0) show_devices();
  if (strcmp(argv[1], "sandboxed") == 0) {
    forbid_netlink();
    show_devices();
  }
  if (strcmp(argv[1], "again") == 0) {
    FILE* fifo = fopen(argv[2], "r");
    while (fifo && fgets(line, sizeof line, fifo)) show_devices();
  }
  if (strcmp(argv[1], "bind") == 0 || strcmp(argv[1], "resolve") == 0) {
    for (int i = 2; i < argc; ++i) bind_or_resolve(argv[i], argv[1][0] == 'b');
  }
  if (strcmp(argv[1], "serve") == 0) serve(atoi(argv[2]));
  if (strcmp(argv[1], "call") == 0) {
    for (int i = 3; i < argc; ++i) call(argv[i], argv[2]);
  }
  if (strcmp(argv[1], "mixed") == 0) mix();
  return 0;
}
