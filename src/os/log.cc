#include "os/log.h"

#include <fcntl.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <new>
#include <string_view>
#include <utility>

#include "os/cancel.h"
#include "os/fd.h"
#include "os/fork.h"
#include "os/with_pid.h"

namespace weft::os {

namespace detail {
std::atomic<LogLevel> g_log_level{LogLevel::kWarning};
}

namespace {

struct Log {
  std::mutex mutex;
  std::string file;  // "": stderr
  std::shared_ptr<spdlog::logger> logger;
  ForkGuard fork;
};

// Never destroyed: threads may log until the very end of the process. In a child of fork() the
// locks inside may be held by threads that do not exist, so the child starts with a new one.
std::atomic<Log*> g_log{nullptr};

spdlog::level::level_enum level_of(LogLevel level) {
  switch (level) {
    case LogLevel::kOff: return spdlog::level::off;
    case LogLevel::kError: return spdlog::level::err;
    case LogLevel::kWarning: return spdlog::level::warn;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kTrace: return spdlog::level::trace;
  }
  return spdlog::level::off;
}

// Writes to a file that we opened. spdlog's own would make missing folders, follow symbolic links,
// and let everybody read.
class FileSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit FileSink(Fd fd) : fd_(std::move(fd)) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    // In one piece, so that lines of several processes do not mix. There is nobody to tell of a
    // full disk.
    [[maybe_unused]] const ssize_t written = ::write(fd_.get(), line.data(), line.size());
  }
  void flush_() override {}

  Fd fd_;
};

std::shared_ptr<spdlog::logger> make_logger(const std::string& file) {
  try {
    spdlog::sink_ptr sink;
    if (file.empty()) {
      sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    } else {
      constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW;
      Fd fd(open(with_pid(file).c_str(), kFlags, 0600));
      if (!fd) return nullptr;
      sink = std::make_shared<FileSink>(std::move(fd));
    }
    auto logger = std::make_shared<spdlog::logger>("weft", std::move(sink));
    logger->set_pattern("%Y-%m-%d %H:%M:%S.%f weft[%P] %l: %v");
    logger->set_level(spdlog::level::trace);
    logger->flush_on(spdlog::level::trace);
    return logger;
  } catch (const spdlog::spdlog_ex&) {
    return nullptr;
  }
}

Log& current() {
  Log* log = g_log.load(std::memory_order_acquire);
  if (log != nullptr && !log->fork.forked()) return *log;
  auto made = std::make_unique<Log>();
  if (log != nullptr) made->file = log->file;
  made->logger = make_logger(made->file);
  if (made->logger == nullptr) made->logger = make_logger("");
  if (g_log.compare_exchange_strong(log, made.get(), std::memory_order_acq_rel)) {
    return *made.release();
  }
  return *log;
}

void write_line(LogLevel level, std::string_view text) {
  Log& log = current();
  std::shared_ptr<spdlog::logger> logger;
  {
    const std::lock_guard lock(log.mutex);
    logger = log.logger;
  }
  if (logger != nullptr)
    logger->log(level_of(level), spdlog::string_view_t(text.data(), text.size()));
}

}  // namespace

void detail::write_log(LogLevel level, fmt::string_view format, fmt::format_args values) noexcept {
  const NoCancel guard;
  try {
    write_line(level, fmt::vformat(format, values));
  } catch (const std::bad_alloc&) {  // who has something to say goes on with what it does
  }
}

Status configure_log(LogLevel level, const std::string& file) {
  const NoCancel guard;
  Log& log = current();
  {
    const std::lock_guard lock(log.mutex);
    if (log.file != file) {
      auto logger = make_logger(file);
      if (logger == nullptr) return fail(Error::kSystem);
      log.logger = std::move(logger);
      log.file = file;
    }
  }
  detail::g_log_level.store(level, std::memory_order_relaxed);
  return {};
}

}  // namespace weft::os
