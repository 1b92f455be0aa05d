// weft-selftest-verbs: what `weft selftest --serve` is for Weft, for every other device: the
// application that `weft selftest` wants at the other end, over libibverbs and librdmacm. The
// messages are those of tools/weft/selftest/offer.h. One thread.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  kRegionBytes = 256 << 10,  // from here to kSentSeed: as in offer.h
  kSmallBytes = 4096,
  kReceiveBytes = 16384,
  kReceives = 32,
  kMaxGuests = 64,
  kRegionSeed = 77,
  kSentSeed = 99,
  kSentBytes = 128 << 10,  // largest Send, Write and Read on command
  kMostAtOnce = 64,        // of them
  kGuardBytes = 4096,
  kReportBytes = 37,
  kOfferBytes = 86,
};

// Memory between guard octets, with a name for the peer if it has one.
struct ground {
  uint8_t* memory;
  size_t bytes;
  uint32_t content_crc;
  struct ibv_mr* mr;
  uint64_t to;
  uint32_t stag;
};

enum { kRegion, kReadOnly, kWriteOnly, kRevoked, kSpare, kInbox, kSent, kSink, kReports, kGrounds };

struct guest {
  struct rdma_cm_id* id;  // NULL: free
  struct ibv_pd* pd;
  struct ibv_cq* cq;
  struct ground grounds[kGrounds];
  unsigned reports;  // sent so far
  uint32_t reads_open, read_bytes;
};

struct command {
  uint8_t kind;
  uint32_t size, count, stag;
  uint64_t to;
};
enum { kStatus, kSend, kWrite, kRead, kDisconnect };  // kinds of commands

struct report {
  uint8_t flags;  // 2: an STag was invalidated, 4: immediate data
  uint32_t bytes, crc, invalidated;
  uint64_t immediate;
};

// messages.c
uint32_t crc32c(const uint8_t* at, size_t bytes);
void fill_pattern(uint8_t* to, size_t bytes, uint32_t seed);
// 0 accept, 1 reject with *size octets, 2 accept without receives.
int decode_wish(const uint8_t* at, size_t bytes, uint16_t* size);
bool decode_command(const uint8_t* at, size_t bytes, struct command* out);
void encode_offer(uint8_t out[kOfferBytes], const struct guest* g, const struct ground* foreign,
                  const uint8_t* private_data, uint16_t private_bytes);
void encode_report(uint8_t out[kReportBytes], const struct report* r, uint32_t damage,
                   uint32_t connections);

// ground.c
bool ground_open(struct ground* g, struct ibv_pd* pd, size_t bytes, int access, uint32_t seed);
void ground_revoke(struct ground* g);  // keeps the memory and its name
void ground_close(struct ground* g);
bool ground_guards_intact(const struct ground* g);
bool ground_untouched(const struct ground* g);

// guest.c. All false or NULL: it does not work out, errno says why.
bool guest_open(struct guest* g, struct rdma_cm_id* id, bool receives);
void guest_close(struct guest* g);
uint32_t guest_damage(const struct guest* g);
// Takes what has arrived. False: the peer is to be disconnected.
bool guest_poll(struct guest* g, uint32_t damage, uint32_t connections);
