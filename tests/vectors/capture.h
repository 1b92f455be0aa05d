// Classic pcap files of TCP over IPv4 over Ethernet, put together to byte streams, and the decodes
// that lie beside them as text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace weft::testing {

// One direction of a TCP connection: all its payload in order.
struct CapturedStream {
  std::vector<std::uint8_t> bytes;
  bool fin = false;
  bool rst = false;
};

struct CapturedConnection {
  CapturedStream from[2];  // [0]: of the side that opened the connection
};

// Fails the running test if the file is not what is expected, or a segment is missing.
[[nodiscard]] std::vector<CapturedConnection> read_pcap(const std::filesystem::path& file);

// Lines of NAME.fpdus.txt: one list for each connection, in order of completion. Packet numbers and
// what depends on TCP segments are left out. Each begins with "> " or "< ".
[[nodiscard]] std::vector<std::vector<std::string>> read_decode(const std::filesystem::path& file);

// Every capture of the folder, by name without extension.
[[nodiscard]] std::vector<std::string> capture_names();
[[nodiscard]] std::filesystem::path capture_file(const std::string& name, const char* extension);

}  // namespace weft::testing
