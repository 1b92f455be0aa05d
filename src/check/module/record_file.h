// A file of records (timeline/record.h), mapped, so that what is in it survives the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "timeline/record.h"

namespace weft::check {

// One thread at a time.
class RecordFile {
 public:
  // The last `most` records are kept. Null with errno: there can be no such file.
  [[nodiscard]] static std::unique_ptr<RecordFile> open(const std::string& path,
                                                        const timeline::FileHeader& header,
                                                        std::size_t most);
  ~RecordFile();
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  // Where the file cannot grow, that is said, and it keeps as many as it has room for.
  void write(const timeline::Octets64& record) noexcept;
  // Notes how many records of the process have no file. Any thread, one at a time.
  void set_lost(std::uint64_t records) noexcept;

 private:
  RecordFile(std::uint8_t* memory, std::size_t bytes, std::string path);
  [[nodiscard]] timeline::FileHeader& header() const noexcept;
  // Storage for one more record at the end. False, with errno: there is no more.
  [[nodiscard]] bool grow() noexcept;

  std::uint8_t* const memory_;
  const std::size_t bytes_;
  const std::string path_;
  std::uint64_t written_ = 0;
  std::size_t slot_ = 0;      // for the next one
  std::size_t room_ = 0;      // slots that have storage
  std::size_t capacity_ = 0;  // slots that may have
};

// On stderr that records are lost, and why: `error` is of errno. Once in a process.
void say_no_room(const std::string& path, int error) noexcept;

}  // namespace weft::check
