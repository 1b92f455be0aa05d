#include "weft-video/convert.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "store/tree.h"
#include "video/film.h"

extern char** environ;

namespace weft::tv {
namespace {

namespace fs = std::filesystem;

// Runs a program and waits for it. Its exit status, or -1 with errno.
int run(std::vector<std::string> words) {
  std::vector<char*> raw;
  for (std::string& word : words) raw.push_back(word.data());
  raw.push_back(nullptr);
  pid_t child = -1;
  errno = posix_spawnp(&child, raw.front(), nullptr, nullptr, raw.data(), environ);
  if (errno != 0) return -1;
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return -1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

}  // namespace

Converted::~Converted() {
  std::error_code ignored;
  if (!folder_.empty()) fs::remove_all(folder_, ignored);
}

store::Outcome<std::string> Converted::decode(const std::string& file) {
  if (folder_.empty()) {
    std::error_code error;
    std::string name = (fs::temp_directory_path(error) / "weft-video-XXXXXX").string();
    if (error || mkdtemp(name.data()) == nullptr) {
      return store::failed(errno, "no temporary folder for converted films");
    }
    folder_ = name;
  }
  const std::string to = folder_ + "/" + fs::path(file).filename().string() + ".y4m";
  std::fprintf(stderr, "weft video: converting %s by ffmpeg\n", file.c_str());
  const int status = run({"ffmpeg", "-nostdin", "-loglevel", "error", "-i", "file:" + file, "-an",
                          "-pix_fmt", "yuv420p", "-f", "yuv4mpegpipe", "-y", "file:" + to});
  if (status < 0 && errno == ENOENT) {
    return store::failed(ENOENT, file,
                         "it is no YUV4MPEG2 file, nor raw frames by its name "
                         "(NAME.WIDTHxHEIGHT@RATE.bgra), and ffmpeg, which could convert it, is "
                         "not installed");
  }
  if (status != 0) return store::failed(EINVAL, file, "ffmpeg could not convert it");
  return to;
}

store::Outcome<void> Converted::convert(std::vector<std::string>& files) {
  for (std::string& file : files) {
    const store::Fd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
    std::vector<std::uint8_t> head(video::kHeaderBytes);
    const ssize_t got = fd ? pread(fd.get(), head.data(), head.size(), 0) : -1;
    if (got < 0) return store::failed(errno, file);
    head.resize(static_cast<std::size_t>(got));
    if (video::identify(file, head)) continue;
    auto made = decode(file);
    if (!made) return tl::unexpected(made.error());
    file = *made;
  }
  return {};
}

}  // namespace weft::tv
