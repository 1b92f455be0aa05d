// The names in a folder of a server.
#pragma once

#include <string>
#include <vector>

#include "files/client/data_client.h"

namespace weft::files {

struct Named {
  std::string name;
  Attributes attributes;
};
inline constexpr std::uint32_t kListBytes = 128U << 10U;

// In any order. `memory` is the connection's, for the server to write to: kListBytes of it are
// used. Names are safe to use below a folder (is_safe_name()). `links`: Request::links.
//   EPROTO   the list is broken or does not end, is larger than 512 MiB, or has an illegal name
// REQUIRES: no request is outstanding.
[[nodiscard]] Outcome<std::vector<Named>> list_folder(Client& client, const Registered& memory,
                                                      const std::string& path,
                                                      std::uint16_t links = kLinksAnywhere);

}  // namespace weft::files
