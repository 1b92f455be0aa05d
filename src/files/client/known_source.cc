#include "files/client/known_source.h"

#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <system_error>

namespace weft::files {
namespace {

// FNV-1a: enough to tell a user's own copies apart.
std::uint64_t number_of(std::string_view text, std::uint64_t state = 0xcbf29ce484222325U) {
  for (const char c : text) state = (state ^ static_cast<std::uint8_t>(c)) * 0x100000001b3U;
  return state;
}

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Close>;

}  // namespace

std::string absolute_name(const std::string& path) {
  std::error_code error;
  std::string out = std::filesystem::absolute(path, error).lexically_normal().string();
  while (out.size() > 1 && out.ends_with('/')) out.pop_back();
  return error ? path : out;
}

std::string state_folder() {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && *state == '/') return std::string(state) + "/weft";
  const char* home = std::getenv("HOME");
  return home != nullptr && *home == '/' ? std::string(home) + "/.local/state/weft" : "";
}

KnownSource::KnownSource(const std::string& folder, std::string_view source,
                         std::string_view destination)
    : folder_(folder) {
  char name[64];
  // A NUL, which no name has, tells where the first ends.
  const std::uint64_t number =
      number_of(destination, number_of(std::string_view("\0", 1), number_of(source)));
  std::snprintf(name, sizeof name, "/source-%016" PRIx64, number);
  name_ = folder_ + name;
}

std::optional<FileSystem> KnownSource::last() const {
  if (folder_.empty()) return std::nullopt;
  const File file(std::fopen(name_.c_str(), "re"));
  FileSystem out;
  const bool whole =
      file && std::fscanf(file.get(), "%" SCNx64 " %" SCNx64, &out.device, &out.id) == 2;
  return whole ? std::optional(out) : std::nullopt;
}

void KnownSource::keep(const FileSystem& now) const {
  if (folder_.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(folder_, ignored);
  // In one step: two copies may end at a time.
  const std::string between = name_ + "." + std::to_string(getpid());
  File file(std::fopen(between.c_str(), "we"));
  if (!file) return;
  char text[64];
  std::snprintf(text, sizeof text, "%" PRIx64 " %" PRIx64 "\n", now.device, now.id);
  const bool written = std::fputs(text, file.get()) >= 0;
  const bool closed = std::fclose(file.release()) == 0;
  const bool named = written && closed && std::rename(between.c_str(), name_.c_str()) == 0;
  if (!named) std::remove(between.c_str());
}

}  // namespace weft::files
