#include "files/server/server_shared.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "files/server/kept_files.h"
#include "files/server/leases.h"

namespace weft::files {

Shared::Shared(ServeOptions what)
    : options(std::move(what)),
      leases(std::make_unique<Leases>()),
      kept(std::make_unique<KeptFiles>()) {}

Shared::~Shared() = default;

std::uint64_t Shared::new_verifier() {
  std::uint64_t number = 0;
  static_cast<void>(getrandom(&number, sizeof number, 0));
  return std::max<std::uint64_t>(number, 1);
}

void Shared::note_lost_write(int error) {
  const bool no_room = error == ENOSPC || error == EDQUOT || error == EFBIG;
  if (!no_room) verifier = new_verifier();
}

int Shared::flush(int fd) {
  const int error = files::flush(fd);
  if (error != 0) note_lost_flush();
  return error;
}

}  // namespace weft::files
