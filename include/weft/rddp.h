/* RDMA over IP as RFC 4296 describes it: the calls ddp_*, rdma_* and xpt_* of its sections 3 to 5,
 * and what the RFC leaves to the implementation: opening devices, connections and time limits.
 *
 * The same calls work over the kernel's TCP and over lwIP; which of the two is decided by how the
 * device is opened. On the wire they are MPA, DDP and RDMAP (RFC 5044, 5041, 5040, 7306), so that
 * an RDDP_RDMA socket talks to any iWARP program. Link with libweft-core.
 *
 * Threads: one at a time per device. Nothing happens behind the caller's back: octets move while a
 * call waits, and in rddp_poll().
 *
 * Where this header departs from the RFC:
 *   - The RFC's prototype of rdma_read() lacks the length that its text has. Here it is there.
 *   - The RFC's rdma_ind_t lacks the id of a notified write. Here it is ddp_ind_t::id.
 *   - Notify ids are not part of the wire formats. rdma_write() sends the id as Immediate Data,
 *     which uses up a buffer that the peer has posted. ddp_send_ddp() sends it in the control octet
 *     of the message, so ids of DDP are below RDDP_DDP_IDS.
 *   - Calls that may wait give a status, and wait as long as rddp_set_timeout() says.
 *
 * The names rdma_post_recv() and rdma_listen() also exist in rdma-core's librdmacm, with other
 * arguments: a source file can include this header or <rdma/rdma_verbs.h>, not both. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

typedef struct rddp_device rddp_device;     /* a TCP, and the memory that peers may reach */
typedef struct rddp_socket rddp_socket;     /* one connection */
typedef struct rddp_listener rddp_listener; /* a port */

/* Every call that can fail returns one of these; RDDP_OK is 0, all others are negative. */
typedef enum rddp_status {
  RDDP_OK = 0,
  RDDP_AGAIN = -1,        /* nothing yet, or no room: the time limit is 0. Poll, then try again */
  RDDP_TIMED_OUT = -2,    /* the time limit has passed, and nothing was begun */
  RDDP_INVALID = -3,      /* the caller passed something that can never work */
  RDDP_NO_MEMORY = -4,    /* or: a limit of rddp_options has been reached */
  RDDP_FULL = -5,         /* as many buffers are posted as rddp_options allows */
  RDDP_BAD_STATE = -6,    /* not connected, or a call for another kind of socket */
  RDDP_DOWN = -7,         /* the connection has ended; ddp_recv() says why */
  RDDP_REFUSED = -8,      /* nobody listens there, or the peer's program said no */
  RDDP_UNREACHABLE = -9,  /* no such host, or no route to it */
  RDDP_IN_USE = -10,      /* the port is taken; deregister: octets of it are on their way */
  RDDP_NOT_FOUND = -11,   /* no such registration */
  RDDP_UNSUPPORTED = -12, /* not on this machine */
  RDDP_SYSTEM = -13,      /* the operating system refused; errno says why */
  RDDP_PENDING = -14      /* the time limit has passed, and the message is under way: its memory
                             is in use until rddp_pending() is 0 or the socket is closed */
} rddp_status;
/* One short English phrase. Lives forever. */
const char* rddp_describe(int status);

/* --- devices --- */

typedef struct rddp_options {
  uint32_t sockets;      /* that the program holds at most, those being set up included */
  uint32_t backlog;      /* per listener, connections that rddp_accept() has not given out yet. When
                            there are more, those whose peers have sent nothing are dropped */
  uint32_t send_depth;   /* messages under way per socket */
  uint32_t recv_depth;   /* buffers posted per socket */
  uint32_t notify_depth; /* RDDP_DDP: notifications that may wait for ddp_recv() */
  uint32_t regions;      /* registrations at once */
  int crc;               /* ask for CRCs; used when either side asks. Default 1 */
  int markers;           /* ask the peer for markers: over lwIP, segments out of order are placed */
} rddp_options;
/* Fills in the defaults. */
void rddp_default_options(rddp_options* options);

/* A device over the kernel's TCP. `options` null: the defaults.
 *   RDDP_INVALID, RDDP_NO_MEMORY, RDDP_UNSUPPORTED */
int rddp_open(const rddp_options* options, rddp_device** device);
/* REQUIRES: its sockets and listeners are closed. */
void rddp_close_device(rddp_device* device);
/* Moves octets for every socket; waits up to `timeout_ms` (-1: without limit) until some came. */
int rddp_poll(rddp_device* device, int timeout_ms);

/* --- connections --- */

typedef enum rddp_kind {
  RDDP_RDMA, /* RDMAP on DDP on MPA: rdma_* */
  RDDP_DDP,  /* DDP on MPA: ddp_* */
  RDDP_XPT   /* MPA: xpt_send(), xpt_recv() */
} rddp_kind;

/* A socket to connect with. Post what the peer may use at once, then connect.
 *   RDDP_NO_MEMORY, RDDP_INVALID */
int rddp_create(rddp_device* device, rddp_kind kind, rddp_socket** socket);
/* Connects, once, and waits for the peer's answer, as long as the time limit says; 10 seconds at
 * most, and 2 for each address of a name but the last. `data` goes to the peer's program with the
 * request, at most 508 octets. `host` is a name or an address. Looking up a name may take longer.
 * Whatever the status, the socket is to be closed.
 *   RDDP_REFUSED      by the peer's program: rddp_private_data() is what it said; or nobody listens
 *   RDDP_UNREACHABLE  no such name, or no route
 *   RDDP_TIMED_OUT    no answer
 *   RDDP_DOWN         the peer took the TCP connection, and then ended it or does not speak MPA
 *   RDDP_NO_MEMORY, RDDP_INVALID, RDDP_BAD_STATE, RDDP_SYSTEM */
int rddp_connect(rddp_socket* socket, const char* host, uint16_t port, const void* data,
                 size_t length);
/* `host` null: every address. Port 0: any; rddp_port() tells which.
 *   RDDP_IN_USE, RDDP_UNREACHABLE, RDDP_NO_MEMORY */
int rddp_listen(rddp_device* device, rddp_kind kind, const char* host, uint16_t port,
                rddp_listener** listener);
uint16_t rddp_port(const rddp_listener* listener);
void rddp_close_listener(rddp_listener* listener);
/* Waits for a request to connect. Post buffers and register memory on the socket, then answer.
 *   RDDP_AGAIN, RDDP_TIMED_OUT
 *   RDDP_NO_MEMORY  the program holds as many sockets as the options allow: close one. The request
 *                   waits meanwhile */
int rddp_accept(rddp_listener* listener, int timeout_ms, rddp_socket** socket);
/* `yes` 0: the peer is refused, and only rddp_close() is left.
 *   RDDP_BAD_STATE, RDDP_INVALID, RDDP_DOWN */
int rddp_answer(rddp_socket* socket, int yes, const void* data, size_t length);
/* What the peer's program sent with its request or answer. Valid until the socket is closed. */
const void* rddp_private_data(const rddp_socket* socket, size_t* length);

/* How long calls on this socket wait: -1 without limit (the default), 0 not at all. Connecting
 * and answering wait in any case. */
void rddp_set_timeout(rddp_socket* socket, int timeout_ms);
/* The caller's own pointer. */
void rddp_set_context(rddp_socket* socket, void* context);
void* rddp_context(const rddp_socket* socket);

/* Messages, writes and reads whose memory is still in use. A call that waits returns when its own
 * is not, or RDDP_PENDING; with a time limit of 0 this tells when. Call rddp_poll() meanwhile. */
uint32_t rddp_pending(const rddp_socket* socket);
/* Waits until rddp_pending() is 0.   RDDP_AGAIN, RDDP_TIMED_OUT, RDDP_DOWN */
int rddp_flush(rddp_socket* socket);

/* Ends the connection in good order, 5 seconds at most, and frees the socket. One that has not been
 * set up is reset at once. Its registrations are gone, its posted buffers are the caller's again.
 */
void rddp_close(rddp_socket* socket);
/* Resets it and frees the socket. */
void rddp_abort(rddp_socket* socket);

/* --- RFC 4296: memory --- */

/* (STag, offset): where in a peer's registered memory. */
typedef struct ddp_addr {
  uint32_t stag;
  uint64_t offset;
} ddp_addr_t;

typedef struct ddp_message {
  const void* data;
  uint32_t length;
} ddp_message_t;

/* A tagged message may tell the peer's program of its arrival. */
typedef struct ddp_notify {
  int wanted;
  uint32_t id;
} ddp_notify_t;
#define RDDP_DDP_IDS 128U

/* A buffer for one untagged message, in the caller's memory until it comes back. */
typedef struct ddp_posted {
  void* data;
  uint32_t length;
  void* context;   /* the caller's */
  uint32_t posted; /* sockets on which it waits; 0 before the first use */
} ddp_posted_t;

/* Stores `count` octets at tagged offset `address`. 0: done; anything else ends the connection with
 * an error of bounds. Called from within calls of this API; makes none itself. */
typedef int (*ddp_set_t)(void* context, uint64_t address, const uint8_t* octets, size_t count);

typedef enum ddp_buffer_kind { RDDP_MEMORY, RDDP_FILE, RDDP_METHOD } ddp_buffer_kind;

/* What can be registered: memory, a part of a file, or whatever a method can store to. */
typedef struct ddp_buffer {
  ddp_buffer_kind kind;
  uint64_t length;      /* octets */
  uint64_t offset;      /* tagged offset of the first one; need not have to do with its address */
  void* memory;         /* RDDP_MEMORY */
  int fd;               /* RDDP_FILE: open for reading, and for writing if peers write */
  uint64_t file_offset; /* RDDP_FILE */
  ddp_set_t set;        /* RDDP_METHOD; peers may write, not read */
  void* context;        /* RDDP_METHOD */
} ddp_buffer_t;

typedef struct ddp_bdesc {
  uint32_t handle;    /* for deregister */
  ddp_addr_t address; /* for the peer */
  uint64_t length;
} ddp_bdesc_t;

/* Largest message that travels in one FPDU. Larger ones are cut up: they are legal. */
typedef struct ddp_msizes {
  uint32_t untagged;
  uint32_t tagged;
} ddp_msizes_t;

typedef enum ddp_ind_kind {
  DDP_IND_NONE,
  DDP_IND_MESSAGE, /* `buffer` holds `length` octets */
  DDP_IND_WRITTEN, /* a notified tagged message: `id`. RDMA: `buffer` comes back, unused */
  DDP_IND_READ,    /* an rdma_read() that did not wait for its end is done: `address`, `length` */
  DDP_IND_CLOSED,  /* in good order; from now on always */
  DDP_IND_ERROR    /* `error`; from now on always */
} ddp_ind_kind;

typedef enum ddp_error {
  DDP_ERROR_NONE,
  DDP_ERROR_LOST,      /* reset, or closed in the middle of something */
  DDP_ERROR_STAG,      /* not registered, or not on this socket */
  DDP_ERROR_RIGHT,     /* registered without RDMA_READ. A Write without right: DDP_ERROR_STAG */
  DDP_ERROR_BOUNDS,    /* outside the buffer */
  DDP_ERROR_NO_BUFFER, /* a message came and no buffer was posted */
  DDP_ERROR_TOO_LONG,  /* a message was longer than its buffer */
  DDP_ERROR_OVERRUN,   /* more notifications than rddp_options allows */
  DDP_ERROR_PROTOCOL   /* anything else the RFCs forbid */
} ddp_error;
const char* ddp_describe_error(ddp_error error);

typedef struct ddp_ind {
  ddp_ind_kind kind;
  ddp_posted_t* buffer;
  uint32_t length;
  uint32_t id;
  ddp_addr_t address;
  ddp_error error;
  int by_peer; /* of an error: the peer found it, in what we sent */
} ddp_ind_t;

/* --- RFC 4296: DDP (kind RDDP_DDP) --- */

/* An untagged message. The memory is free when the call returns; with a time limit of 0, and after
 * RDDP_PENDING, when rddp_pending() says so.
 *   RDDP_AGAIN, RDDP_TIMED_OUT, RDDP_PENDING, RDDP_DOWN, RDDP_INVALID, RDDP_BAD_STATE */
int ddp_send(rddp_socket* socket, ddp_message_t message);
/* A tagged message to `to`. As ddp_send(); RDDP_INVALID also for an id of RDDP_DDP_IDS or above. */
int ddp_send_ddp(rddp_socket* socket, ddp_message_t message, ddp_addr_t to, ddp_notify_t notify);
/* A buffer for one untagged message. The same may be posted on several sockets of the device: the
 * message that comes first takes it off all of them.   RDDP_FULL, RDDP_DOWN, RDDP_INVALID */
int ddp_post_recv(rddp_socket* socket, ddp_posted_t* buffer);
/* The next indication, in the order of arrival; DDP_IND_NONE within the time limit. */
ddp_ind_t ddp_recv(rddp_socket* socket);
/* Peers of this socket may write there. Any number of registrations may name the same octets.
 *   RDDP_INVALID, RDDP_NO_MEMORY, RDDP_SYSTEM, RDDP_UNSUPPORTED (files, without an OS) */
int ddp_register(rddp_socket* socket, const ddp_buffer_t* buffer, ddp_bdesc_t* description);
/* Final when it returns.   RDDP_NOT_FOUND, RDDP_IN_USE */
int ddp_deregister(rddp_socket* socket, uint32_t handle);
ddp_msizes_t ddp_max_msizes(const rddp_socket* socket);

/* --- RFC 4296: RDMA (kind RDDP_RDMA) --- */

typedef enum rdma_mode { RDMA_READ = 1, RDMA_WRITE = 2, RDMA_READ_WRITE = 3 } rdma_mode;

/* As ddp_send() and ddp_send_ddp(); ids have 32 bits. */
int rdma_send(rddp_socket* socket, ddp_message_t message);
int rdma_write(rddp_socket* socket, ddp_message_t message, ddp_addr_t to, ddp_notify_t notify);
/* `length` octets from the peer's `from` into `to`, which is registered on this socket (any mode).
 * May take any time. With a time limit of 0, and after RDDP_PENDING, DDP_IND_READ tells the end. */
int rdma_read(rddp_socket* socket, ddp_addr_t from, uint32_t length, ddp_addr_t to);
int rdma_post_recv(rddp_socket* socket, ddp_posted_t* buffer);
ddp_ind_t rdma_recv(rddp_socket* socket);
int rdma_register(rddp_socket* socket, const ddp_buffer_t* buffer, rdma_mode mode,
                  ddp_bdesc_t* description);
int rdma_deregister(rddp_socket* socket, uint32_t handle);
ddp_msizes_t rdma_max_msizes(const rddp_socket* socket);

/* --- RFC 4296: the transport by itself (kind RDDP_XPT) --- */

/* One FPDU, of 1 to xpt_max_msize() octets. As ddp_send(). */
int xpt_send(rddp_socket* socket, ddp_message_t message);
int xpt_post_recv(rddp_socket* socket, ddp_posted_t* buffer);
ddp_ind_t xpt_recv(rddp_socket* socket);
uint32_t xpt_max_msize(const rddp_socket* socket);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif
