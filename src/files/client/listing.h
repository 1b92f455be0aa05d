// The names in a folder of a server.
#pragma once

#include <string>
#include <vector>

#include "files/client/data_client.h"

namespace weft::files {

struct Named {
  std::string name;
  Attributes attributes;  // or Attributes::failure()
};
inline constexpr std::uint32_t kListBytes = 128U << 10U;

// In any order. A name that the server cannot look at, or that this system cannot have, comes with
// its errno: whoever needs it has failed. All others are safe to use below a folder
// (is_safe_name()). `memory` is the connection's, for the server to write to: kListBytes of it are
// used. `links`: Request::links.
//   EPROTO   the list is broken or does not end, is larger than 512 MiB, or has an illegal name
// REQUIRES: no request is outstanding.
[[nodiscard]] Outcome<std::vector<Named>> list_folder(Client& client, const Registered& memory,
                                                      const std::string& path,
                                                      std::uint16_t links = kLinksAnywhere);

}  // namespace weft::files
