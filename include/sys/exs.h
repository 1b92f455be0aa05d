/* clang-format off */
/* Extended sockets: sockets with registered memory and asynchronous completion through event
 * queues, over any RDMA that libibverbs and librdmacm reach, and over TCP where there is none.
 *
 *   cc program.c -lexs        man pages: exs(7) and one for each family of calls
 *
 * Conventions
 *
 *  Errors. A call returns -1 with errno when it failed, and then nothing has happened. A call that
 *  posts an operation returns 0. The result of the operation is in its event.
 *
 *  Blocking. With the queue handle EXS_QHANDLE_INVALID a call blocks, and returns what the event
 *  would have said: a byte count, the accepted descriptor, the number of ready descriptors.
 *
 *  Memory. The caller keeps the buffers, vectors and addresses that a call names until the event of
 *  the operation. An exception is the content of a vector (exs_iovec_t, exs_fdvec_t,
 *  exs_xferfile_t), which the call copies. exs_pollfd_t and exs_acceptaddr_t are results: they have
 *  to stay. Memory that is not mapped, or not writable where it has to be, is EFAULT; a change of
 *  its rights is seen 10 ms later at the latest.
 *
 *  Threads. Every thread may call every function. After fork() the child may not use what the
 *  parent had.
 */
/* clang-format on */
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EXS_VERSION1 1
#define EXS_VERSION EXS_VERSION1

typedef int exs_qhandle_t;
typedef int exs_mhandle_t;
typedef intptr_t exs_ahandle_t; /* the caller's; holds a pointer */

#define EXS_QHANDLE_INVALID (-1)
#define EXS_MHANDLE_INVALID (-1)
#define EXS_MHANDLE_UNREGISTERED (-2) /* this buffer is not registered */

/* Flags of exs_mregister. */
#define EXS_MRF_SHARED 0x1 /* the memory is shared with other processes: a hint */

/* Flags of exs_send and exs_sendmsg, beside MSG_WAITALL, MSG_DONTWAIT and MSG_NOSIGNAL. */
#define EXS_PERSISTENT 0x10000000 /* may be received again and again, until canceled or closed */

/* exs_poll */
#define EXS_POLLIN 0x1
#define EXS_POLLOUT 0x4
#define EXS_POLLERR 0x8
#define EXS_POLLHUP 0x10

#define EXS_SHUT_WR SHUT_WR

/* exs_cancel */
#define EXS_CAF_FILDES 0x1  /* every operation of the socket */
#define EXS_CAF_AHANDLE 0x2 /* those with this application handle */

/* Tags of exs_xferfile_t. */
#define EXS_IOVEC 1
#define EXS_FDVEC 2

/* Events. */
enum {
  EXS_EVT_POLL = 1,
  EXS_EVT_CONNECT,
  EXS_EVT_ACCEPT,
  EXS_EVT_SEND,
  EXS_EVT_RECV,
  EXS_EVT_SENDMSG,
  EXS_EVT_RECVMSG,
  EXS_EVT_SENDFILE,
  EXS_EVT_SENDTIMEOUT,
  EXS_EVT_RECVTIMEOUT,
  EXS_EVT_SHUTDOWN,
  EXS_EVT_CLOSE,
  EXS_EVT_WRITE,    /* exs_write */
  EXS_EVT_READ,     /* exs_read */
  EXS_EVT_FETCHADD, /* exs_fetch_add */
  EXS_EVT_CMPSWAP   /* exs_cmp_swap */
};

/* Queues. */
#define EXS_EVTVEC_MAX 1024 /* the most events of one exs_qdequeue */
enum { EXS_QATTR_DEPTH = 1, EXS_QATTR_SIGNAL, EXS_QATTR_EVENTS, EXS_QATTR_WAIT };
enum { EXS_SIG_DISABLE = 0, EXS_SIG_ENABLE = 1 };
enum { EXS_WAIT_ADAPTIVE = 0, EXS_WAIT_BUSY_POLL, EXS_WAIT_NOTIFY };

/* Options of exs_setsockopt at level SOL_SOCKET. */
#define SO_ASYNC_RECV_ORDERED 0x4501 /* int; receives complete in the order posted: always so */
#define SO_ASYNC_SEND_TIMEOUT 0x4502 /* exs_timeout_t */
#define SO_ASYNC_RECV_TIMEOUT 0x4503 /* exs_timeout_t */
#define EXS_TIMEOUT_ONCE 0x1

/* Commands of exs_fcntl beside F_GETFL, F_SETFL (O_NONBLOCK), F_GETFD and F_SETFD; each has one
 * number, with the unit beside it. Those that set are for sockets that are not connected and do not
 * listen. Accepted sockets have their listener's settings. */
#define EXS_F_SETIMMEDIATE 0x4510 /* bytes: up to this much travels in a message */
#define EXS_F_GETIMMEDIATE 0x4511
#define EXS_F_SETCREDITS 0x4512 /* messages: what the peer may have under way */
#define EXS_F_GETCREDITS 0x4513
#define EXS_F_SETRING 0x4514 /* bytes: held while a peer is ahead of our receives */
#define EXS_F_GETRING 0x4515
#define EXS_F_SETPROVIDER 0x4516 /* EXS_PROVIDER_* */
#define EXS_F_GETPROVIDER 0x4517 /* of a connected socket: what it runs over */
#define EXS_F_SETTCPPORT 0x4518  /* listeners over RDMA: a port for peers that have only TCP */
#define EXS_F_GETTCPPORT 0x4519
#define EXS_TCPPORT_ANY (-1) /* EXS_F_SETTCPPORT: one that the system chooses */
enum { EXS_PROVIDER_AUTO = 0, EXS_PROVIDER_RDMA = 1, EXS_PROVIDER_TCP = 2 };

#define EXS_IOV_MAX 16 /* pieces, of one message or file transfer */

typedef struct exs_iovec {
  void* iov_base;
  size_t iov_len;
  exs_mhandle_t iov_mhandle;
} exs_iovec_t;

typedef struct exs_msghdr {
  exs_iovec_t* msg_iov;
  int msg_iovlen;
  int msg_flags;
} exs_msghdr_t;

typedef struct exs_pollfd {
  int fd;
  short events;
  short revents;
} exs_pollfd_t;

typedef struct exs_acceptaddr {
  struct sockaddr* addr;
  socklen_t addrlen; /* room at `addr` */
} exs_acceptaddr_t;

typedef struct exs_fdvec {
  int fd;
  off_t offset;
  size_t length;
} exs_fdvec_t;

typedef struct exs_xferfile {
  int tag; /* EXS_IOVEC or EXS_FDVEC */
  union {
    exs_iovec_t iovec;
    exs_fdvec_t fdvec;
  } u;
} exs_xferfile_t;

typedef struct exs_signal {
  int signo;
  int enable; /* EXS_SIG_ENABLE or EXS_SIG_DISABLE */
  union sigval value;
} exs_signal_t;

typedef struct exs_timeout {
  struct timeval tv; /* s and us; both zero: no time limit */
  int flags;         /* EXS_TIMEOUT_ONCE, or 0: again after each such time */
  exs_qhandle_t qhandle;
  exs_ahandle_t ahandle;
} exs_timeout_t;

typedef struct exs_evt_accept {
  int fd;               /* the new socket */
  socklen_t addrlen[2]; /* lengths of the peer's and of the local address */
} exs_evt_accept_t;
typedef struct exs_evt_poll {
  int ready; /* entries with revents */
} exs_evt_poll_t;
typedef struct exs_evt_xfer {
  size_t length;
} exs_evt_xfer_t;
typedef struct exs_evt_xfermsg {
  size_t length;
  int flags; /* MSG_TRUNC: the message was longer than the buffers */
} exs_evt_xfermsg_t;
typedef struct exs_evt_xferfile {
  size_t length;
} exs_evt_xferfile_t;

typedef struct exs_event {
  int type;  /* EXS_EVT_* */
  int error; /* 0 or an errno */
  exs_ahandle_t ahandle;
  int fd;
  union {
    exs_evt_accept_t accept;
    exs_evt_poll_t poll;
    exs_evt_xfer_t xfer;
    exs_evt_xfermsg_t xfermsg;
    exs_evt_xferfile_t xferfile;
    uint64_t value; /* FETCHADD, CMPSWAP: what was there before */
  } u;
} exs_event_t;

/* Field access that outlives a rename. */
#define exs_evt_type(event) ((event)->type)
#define exs_evt_error(event) ((event)->error)
#define exs_evt_ahandle(event) ((event)->ahandle)
#define exs_evt_fd(event) ((event)->fd)
#define exs_evt_length(event) ((event)->u.xfer.length)
#define exs_evt_accepted(event) ((event)->u.accept.fd)

/* The name of a piece of memory for a peer's one-sided work: plain bytes, for the application to
 * send as it likes. */
typedef struct exs_mname {
  unsigned char bytes[32];
} exs_mname_t;
typedef int exs_rhandle_t; /* an imported name */
#define EXS_MEXPORT_READ 0x1
#define EXS_MEXPORT_WRITE 0x2
#define EXS_MEXPORT_ATOMIC 0x4

/* Counters of a socket since it was made. Appended to, never changed: `size` is sizeof(exs_stats_t)
 * as the caller knows it. */
typedef struct exs_counters {
  size_t size;
  uint64_t bytes_sent;        /* bytes of payload */
  uint64_t bytes_received;    /* likewise */
  uint64_t direct_sent;       /* bytes that went straight to the receiver's memory */
  uint64_t direct_received;   /* bytes that were placed without a copy */
  uint64_t indirect_sent;     /* bytes by way of the receiver's ring */
  uint64_t indirect_received; /* bytes that were copied to their place */
  uint64_t immediate_sent;    /* bytes inside messages */
  uint64_t copies;            /* memory copies of payload, both directions */
  uint64_t copied_bytes;
  uint64_t messages_sent; /* messages of the EXS protocol */
  uint64_t messages_received;
  uint64_t credit_stalls;   /* times that a send waited for a credit */
  uint64_t ring_stalls;     /* times that a send waited for room at the receiver */
  uint64_t adverts_sent;    /* offers of a receive's memory to the sender */
  uint64_t adverts_void;    /* adverts that the sender could not use */
  uint64_t persistent_read; /* receives served by a persistent send */
  uint64_t switches;        /* times that it went from direct to indirect */
} exs_stats_t;

int exs_init(int version);

int exs_socket(int domain, int type, int protocol);
int exs_bind(int fd, const struct sockaddr* addr, socklen_t addrlen);
int exs_listen(int fd, int backlog);
int exs_accept(int fd, exs_acceptaddr_t* vec, int count, int flags, exs_qhandle_t q,
               exs_ahandle_t ah);
int exs_connect(int fd, const struct sockaddr* addr, socklen_t addrlen, int flags, exs_qhandle_t q,
                exs_ahandle_t ah);
int exs_shutdown(int fd, int how, exs_qhandle_t q, exs_ahandle_t ah);
int exs_close(int fd, exs_qhandle_t q, exs_ahandle_t ah);
int exs_cancel(int fd, int flags, exs_ahandle_t ah);
int exs_poll(exs_pollfd_t* vec, int count, int flags, exs_qhandle_t q, exs_ahandle_t ah);
int exs_fcntl(int fd, int command, long arg);
int exs_setsockopt(int fd, int level, int name, const void* value, socklen_t length);
int exs_getsockopt(int fd, int level, int name, void* value, socklen_t* length);
int exs_getsockname(int fd, struct sockaddr* addr, socklen_t* addrlen);
int exs_getpeername(int fd, struct sockaddr* addr, socklen_t* addrlen);

ssize_t exs_send(int fd, const void* buf, size_t len, int flags, exs_qhandle_t q, exs_ahandle_t ah,
                 exs_mhandle_t mh);
ssize_t exs_recv(int fd, void* buf, size_t len, int flags, exs_qhandle_t q, exs_ahandle_t ah,
                 exs_mhandle_t mh);
ssize_t exs_sendmsg(int fd, const exs_msghdr_t* msg, int flags, exs_qhandle_t q, exs_ahandle_t ah);
ssize_t exs_recvmsg(int fd, exs_msghdr_t* msg, int flags, exs_qhandle_t q, exs_ahandle_t ah);
ssize_t exs_sendfile(int fd, const exs_xferfile_t* vec, int count, int flags, exs_qhandle_t q,
                     exs_ahandle_t ah);

exs_mhandle_t exs_mregister(void* addr, size_t len, int flags);
int exs_mderegister(exs_mhandle_t mh);

exs_qhandle_t exs_qcreate(int depth);
int exs_qdelete(exs_qhandle_t q);
int exs_qdequeue(exs_qhandle_t q, exs_event_t* vec, int n, const struct timeval* timeout);
int exs_qmodify(exs_qhandle_t q, int attribute, const void* value);
int exs_qstatus(exs_qhandle_t q, int attribute, void* value);
int exs_qfd(exs_qhandle_t q);

/* One-sided work on a connected socket; both ends have to run over RDMA. */
int exs_mexport(int fd, exs_mhandle_t mh, void* addr, size_t len, int rights, exs_mname_t* name);
int exs_munexport(int fd, const exs_mname_t* name);
exs_rhandle_t exs_mimport(int fd, const exs_mname_t* name);
int exs_munimport(int fd, exs_rhandle_t remote);
ssize_t exs_write(int fd, const void* buf, size_t len, exs_rhandle_t remote, uint64_t offset,
                  exs_qhandle_t q, exs_ahandle_t ah, exs_mhandle_t mh);
ssize_t exs_read(int fd, void* buf, size_t len, exs_rhandle_t remote, uint64_t offset,
                 exs_qhandle_t q, exs_ahandle_t ah, exs_mhandle_t mh);
int exs_fetch_add(int fd, exs_rhandle_t remote, uint64_t offset, uint64_t add, uint64_t* before,
                  exs_qhandle_t q, exs_ahandle_t ah);
int exs_cmp_swap(int fd, exs_rhandle_t remote, uint64_t offset, uint64_t compare, uint64_t swap,
                 uint64_t* before, exs_qhandle_t q, exs_ahandle_t ah);

int exs_stats(int fd, exs_stats_t* stats);
const char* exs_strevent(int type);

#ifdef __cplusplus
}
#endif
