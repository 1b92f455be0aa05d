// Read leases (fcntl, F_SETLEASE) on files that clients read: as long as the server has one, nobody
// can open the file for writing, and nobody had when it got it. A program that wants to is held up
// until the lease is given back, which the server does as soon as the kernel tells it.
//
// Belongs to the server. One thread, the server's.
#pragma once

#include <memory>
#include <vector>

#include "files/protocol/tree.h"
#include "files/server/open_files.h"
#include "os/fd.h"

namespace weft::files {

class Leases {
 public:
  // Blocks the kernel's signal (SIGIO) in the calling thread, and in those that it makes.
  // Returns an errno.
  [[nodiscard]] int open();
  // Readable when somebody wants to write one of the files: call give_back() then.
  [[nodiscard]] int fd() const { return signals_.get(); }
  // Until the file is closed. An errno.
  //   EAGAIN   somebody has it open for writing
  //   EACCES   it belongs to somebody else
  //   EINVAL   this file system has no leases, or none that tell: leases_tell()
  [[nodiscard]] int take(const OpenFiles::File& file);
  // Whether the server had the lease all the time since take().
  [[nodiscard]] static bool has(const OpenFile& file);
  // Those that somebody waits for.
  void give_back();
  // Those of the file with this path, which this server is about to open for writing or make
  // shorter: nobody but this thread could give them back meanwhile.
  void give_up(const Tree& tree, const PathName& path);

 private:
  os::Fd signals_;
  std::vector<std::weak_ptr<OpenFile>> files_;
};

}  // namespace weft::files
