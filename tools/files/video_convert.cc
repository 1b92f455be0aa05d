#include "files/video_convert.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "files/client/local.h"
#include "files/protocol/outcome.h"
#include "files/video/film.h"

extern char** environ;

namespace weft::tv {
namespace {

namespace fs = std::filesystem;

// How long a program that was told to end may take.
constexpr timespec kEndTime{5, 0};

// Those that end a server.
sigset_t end_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int one : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, one);
  return set;
}

// With `mask` as its blocked signals. -1 with errno.
pid_t spawn(std::vector<std::string> words, const sigset_t& mask) {
  std::vector<char*> raw;
  for (std::string& word : words) raw.push_back(word.data());
  raw.push_back(nullptr);
  posix_spawnattr_t how;
  posix_spawnattr_init(&how);
  posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK);
  posix_spawnattr_setsigmask(&how, &mask);
  pid_t child = -1;
  const int error = posix_spawnp(&child, raw.front(), nullptr, &how, raw.data(), environ);
  posix_spawnattr_destroy(&how);
  errno = error;
  return error == 0 ? child : -1;
}

// Until the child has ended. A signal that comes meanwhile is passed on to it, and is in
// `interrupted` then. Returns its exit status.  REQUIRES: `all` is blocked.
int wait_for(pid_t child, const sigset_t& all, bool& interrupted) {
  int status = 0;
  pid_t ended = 0;
  while ((ended = waitpid(child, &status, WNOHANG)) == 0) {
    const int got = sigtimedwait(&all, nullptr, interrupted ? &kEndTime : nullptr);
    if (got > 0 && got != SIGCHLD) {
      kill(child, SIGTERM);
      interrupted = true;
    } else if (got < 0 && errno == EAGAIN) {
      kill(child, SIGKILL);
    }
  }
  return ended == child && WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

// Runs a program with signals as in `mask` and waits for it. Its exit status, or -1 with errno;
// EINTR: a signal has ended it. REQUIRES: end_signals() are blocked, so that no signal is missed.
int run(std::vector<std::string> words, const sigset_t& mask) {
  sigset_t all = end_signals();
  sigaddset(&all, SIGCHLD);
  sigset_t before;
  sigprocmask(SIG_BLOCK, &all, &before);
  // A program that ignored it leaves that to those it starts: no signal comes then, and no status.
  std::signal(SIGCHLD, SIG_DFL);
  const pid_t child = spawn(std::move(words), mask);
  int error = errno;
  int status = -1;
  bool interrupted = false;
  if (child >= 0) status = wait_for(child, all, interrupted);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (interrupted) {
    status = -1;
    error = EINTR;
  }
  errno = error;
  return status;
}

std::string converted_name(const std::string& file) {
  return fs::path(file).filename().string() + ".y4m";
}

// Or something that has to be converted.
files::Outcome<bool> is_film(const std::string& file) {
  // Nobody may ever write to a pipe.
  const os::Fd fd(::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat info {};
  if (!fd || fstat(fd.get(), &info) != 0) return files::failed(errno, file);
  if (!S_ISREG(info.st_mode)) return files::failed(EINVAL, file, "it is no regular file");
  if (const auto raw = video::parse_raw_name(file); raw && !*raw) {
    return files::failed(raw->error().error, file, raw->error().why);  // ffmpeg knows no more of it
  }
  std::vector<std::uint8_t> head(video::kHeaderBytes);
  const ssize_t got = pread(fd.get(), head.data(), head.size(), 0);
  if (got < 0) return files::failed(errno, file);
  head.resize(static_cast<std::size_t>(got));
  return video::identify(file, head).has_value();
}

}  // namespace

Converted::Converted() {
  const sigset_t ends = end_signals();
  sigprocmask(SIG_BLOCK, &ends, &before_);
}

Converted::~Converted() {
  std::error_code ignored;
  if (!folder_.empty()) fs::remove_all(folder_, ignored);
  sigprocmask(SIG_SETMASK, &before_, nullptr);
}

files::Outcome<std::string> Converted::decode(const std::string& file) {
  if (folder_.empty()) {
    std::error_code error;
    std::string name = (fs::temp_directory_path(error) / "weft-video-XXXXXX").string();
    if (error || mkdtemp(name.data()) == nullptr) {
      return files::failed(errno, "no temporary folder for converted films");
    }
    folder_ = name;
  }
  const std::string to = folder_ + "/" + converted_name(file);
  std::fprintf(stderr, "weft video: converting %s by ffmpeg\n", file.c_str());
  const int status = run({"ffmpeg", "-nostdin", "-loglevel", "error", "-i", "file:" + file, "-an",
                          "-pix_fmt", "yuv420p", "-f", "yuv4mpegpipe", "-y", "file:" + to},
                         before_);
  if (status < 0 && errno == EINTR) {
    return files::failed(EINTR, file, "the conversion was interrupted");
  }
  if (status < 0 && errno == ENOENT) {
    return files::failed(ENOENT, file,
                         "it is no YUV4MPEG2 file, nor raw frames by its name "
                         "(NAME.WIDTHxHEIGHT@RATE.bgra), and ffmpeg, which could convert it, is "
                         "not installed");
  }
  if (status != 0) return files::failed(EINVAL, file, "ffmpeg could not convert it");
  return to;
}

files::Outcome<void> Converted::convert(std::vector<std::string>& files) {
  std::vector<std::string*> others;
  std::set<std::string> names;
  for (std::string& file : files) {
    const auto there = is_film(file);
    if (!there) return tl::unexpected(there.error());
    if (!*there) others.push_back(&file);
    const std::string name = *there ? fs::path(file).filename().string() : converted_name(file);
    if (names.insert(name).second) continue;
    return files::failed(EEXIST, "cannot serve " + file,
                         "two files would be called '" + name + "'; rename one");
  }
  for (std::string* file : others) {
    auto made = decode(*file);
    if (!made) return tl::unexpected(made.error());
    *file = *made;
  }
  return {};
}

}  // namespace weft::tv
