#include <string.h>

#include "serve.h"

static uint8_t* put(uint8_t* out, uint64_t value, unsigned bytes) {
  for (unsigned i = bytes; i-- > 0; value >>= 8) out[i] = (uint8_t)value;
  return out + bytes;
}

static uint64_t get(const uint8_t* in, unsigned bytes) {
  uint64_t value = 0;
  for (unsigned i = 0; i < bytes; i++) value = value << 8 | in[i];
  return value;
}

uint32_t crc32c(const uint8_t* at, size_t bytes) {
  static uint32_t table[256];
  for (uint32_t i = 0; table[255] == 0 && i < 256; i++) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0x82f63b78U : 0);
    table[i] = crc;
  }
  uint32_t crc = 0xffffffffU;
  for (size_t i = 0; i < bytes; i++) crc = crc >> 8 ^ table[(crc ^ at[i]) & 0xff];
  return ~crc;
}

void fill_pattern(uint8_t* to, size_t bytes, uint32_t seed) {
  for (size_t i = 0; i < bytes; i++) to[i] = (uint8_t)((i + seed) * 2654435761U >> 13);
}

int decode_wish(const uint8_t* at, size_t bytes, uint16_t* size) {
  // rdma_cm may hand up more octets than the peer sent.
  if (bytes < 11 || memcmp(at, "weftwish", 8) != 0 || at[8] > 2) return 0;
  *size = (uint16_t)get(at + 9, 2);
  return at[8];
}

bool decode_command(const uint8_t* at, size_t bytes, struct command* out) {
  if (bytes != 29 || memcmp(at, "weft do:", 8) != 0 || at[8] > kDisconnect) return false;
  out->kind = at[8];
  out->size = (uint32_t)get(at + 9, 4);
  out->count = (uint32_t)get(at + 13, 4);
  out->stag = (uint32_t)get(at + 17, 4);
  out->to = get(at + 21, 8);
  return true;
}

static uint8_t* put_ground(uint8_t* out, const struct ground* g) {
  return put(put(out, g->stag, 4), g->to, 8);
}

void encode_offer(uint8_t out[kOfferBytes], const struct guest* g, const struct ground* foreign,
                  const uint8_t* private_data, uint16_t private_bytes) {
  memcpy(out, "weftself", 8);
  out += 8;
  out = put_ground(out, &g->grounds[kRegion]);
  out = put_ground(out, &g->grounds[kReadOnly]);
  out = put_ground(out, &g->grounds[kWriteOnly]);
  out = put_ground(out, foreign);
  out = put_ground(out, &g->grounds[kRevoked]);
  out = put_ground(out, &g->grounds[kSpare]);
  out = put(out, private_bytes, 2);
  put(out, crc32c(private_data, private_bytes), 4);
}

void encode_report(uint8_t out[kReportBytes], const struct report* r, uint32_t damage,
                   uint32_t connections) {
  memcpy(out, "weftdone", 8);
  out[8] = r->flags;
  out = put(out + 9, r->bytes, 4);
  out = put(out, r->crc, 4);
  out = put(out, r->invalidated, 4);
  out = put(out, r->immediate, 8);
  out = put(out, damage, 4);
  put(out, connections, 4);
}
