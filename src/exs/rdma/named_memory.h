// Memory that is reached by name: ours, that the peer may reach, and the peer's, that we may.
//
// With the mutex of the socket, as all of RdmaSocket.
#pragma once

#include <sys/exs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "exs/core/exs_memory.h"

namespace weft::exs {

class NamedMemory {
 public:
  struct Remote {
    std::uint64_t addr = 0;
    std::uint64_t length = 0;
    std::uint32_t rkey = 0;
  };

  // The peer may reach this until it is taken back. `region` is attached; it is detached then. 0 or
  // an errno.
  int export_memory(const std::shared_ptr<Device>& device, const std::shared_ptr<Region>& region,
                    void* addr, std::size_t length, int rights, exs_mname_t& name);
  int unexport(const exs_mname_t& name);
  // Takes back all that is exported.
  void release();

  int import_name(const exs_mname_t& name);  // a handle, or an errno, negative
  int unimport(int handle);
  // Null: there is no such handle.
  [[nodiscard]] const Remote* remote(int handle) const;

 private:
  struct Exported {
    exs_mname_t name;
    Mr mr;
    std::shared_ptr<Region> region;
  };

  std::vector<Exported> exported_;
  std::vector<std::optional<Remote>> remotes_;
};

}  // namespace weft::exs
