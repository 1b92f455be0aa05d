// The JSON of Chrome's trace viewer.
#include <array>
#include <cstdio>
#include <string_view>

#include "timeline/picture.h"

namespace weft::timeline {

namespace {

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto octet = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') out += '\\';
    // Octets that are not ASCII may be no UTF-8.
    if (octet < 0x20 || octet >= 0x7f) {
      out += '?';
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// The format has microseconds.
std::string micros(std::uint64_t ns) {
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%llu.%03llu", static_cast<unsigned long long>(ns / 1000),
                static_cast<unsigned long long>(ns % 1000));
  return text.data();
}

std::string where(const Picture& picture, std::size_t track) {
  return "\"pid\":" + std::to_string(picture.tracks[track].process + 1) +
         ",\"tid\":" + std::to_string(track + 1);
}

std::string name_event(const char* what, const std::string& ids, std::string_view name) {
  return std::string(R"({"ph":"M","name":")") + what + "\"," + ids + R"(,"args":{"name":)" +
         quoted(name) + "}}";
}

std::string event_of(const Picture& picture, const Slice& slice) {
  std::string out = R"({"ph":"X","cat":"weft","name":)" + quoted(slice.name) +
                    ",\"ts\":" + micros(slice.begin) +
                    ",\"dur\":" + micros(slice.end - slice.begin) + "," +
                    where(picture, slice.track) + ",\"args\":{";
  const char* joint = "";
  for (const auto& [name, value] : slice.details) {
    out += joint + quoted(name) + ":" + quoted(value);
    joint = ",";
  }
  out += "}}";
  if (slice.flow == 0) return out;
  out += std::string(",\n{\"ph\":\"") + (slice.flow_ends ? "f\",\"bp\":\"e" : "s") +
         R"(","cat":"weft","name":"message","id":)" + std::to_string(slice.flow) +
         ",\"ts\":" + micros(slice.begin) + "," + where(picture, slice.track) + "}";
  return out;
}

}  // namespace

std::string as_json(const Picture& picture) {
  std::string out = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
  const char* joint = "\n";
  const auto add = [&](const std::string& event) {
    out += joint + event;
    joint = ",\n";
  };
  for (std::size_t i = 0; i < picture.processes.size(); ++i) {
    const Process& one = picture.processes[i];
    add(name_event("process_name", "\"pid\":" + std::to_string(i + 1),
                   one.name() + ": " + one.program));
  }
  for (std::size_t i = 0; i < picture.tracks.size(); ++i)
    add(name_event("thread_name", where(picture, i), picture.tracks[i].name));
  for (const Slice& slice : picture.slices) add(event_of(picture, slice));
  return out + "\n]}\n";
}

}  // namespace weft::timeline
