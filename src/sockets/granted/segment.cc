#include "sockets/granted/segment.h"

#include <cassert>

#include <sys/ipc.h>
#include <sys/random.h>
#include <sys/shm.h>
#include <unistd.h>

namespace weft::sockets::granted::segments {

Segment* make(const Key& key, rendezvous::Made& made) {
  made = {};
  if (getrandom(&made.nonce, sizeof made.nonce, GRND_NONBLOCK) !=
      static_cast<ssize_t>(sizeof made.nonce)) {
    return nullptr;
  }
  // Nobody has its id but those who read it in the registry.
  const int id = shmget(IPC_PRIVATE, sizeof(Segment), IPC_CREAT | 0600);
  if (id < 0) return nullptr;
  void* at = shmat(id, nullptr, 0);
  shmctl(id, IPC_RMID, nullptr);
  if (at == reinterpret_cast<void*>(-1)) return nullptr;
  auto* segment = static_cast<Segment*>(at);
  segment->nonce = made.nonce;
  segment->key = key;
  for (GrantShared& words : segment->words) GrantMemory::reset(words);
  made.segment = id;
  return segment;
}

Segment* attach(const Key& key, const rendezvous::Made& made) {
  shmid_ds is{};
  if (shmctl(made.segment, IPC_STAT, &is) != 0 || is.shm_segsz != sizeof(Segment) ||
      is.shm_perm.cuid != geteuid() || (is.shm_perm.mode & 077U) != 0) {
    return nullptr;
  }
  void* at = shmat(made.segment, nullptr, 0);
  if (at == reinterpret_cast<void*>(-1)) return nullptr;
  auto* segment = static_cast<Segment*>(at);
  if (segment->nonce == made.nonce && segment->key.octets == key.octets) return segment;
  shmdt(at);
  return nullptr;
}

void detach(Segment* segment) {
  assert(segment != nullptr);
  shmdt(segment);
}

}  // namespace weft::sockets::granted::segments
