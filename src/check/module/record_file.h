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
  // The last `most` records are kept; or, with `keeps_first`, the first ones. Null with errno:
  // there can be no such file.
  [[nodiscard]] static std::unique_ptr<RecordFile> open(const std::string& path,
                                                        const timeline::FileHeader& header,
                                                        std::size_t most, bool keeps_first);
  ~RecordFile();
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  void write(const timeline::Octets64& record) noexcept;

 private:
  RecordFile(std::uint8_t* memory, std::size_t bytes, std::string path, bool keeps_first);
  [[nodiscard]] timeline::FileHeader& header() const noexcept;
  // Storage for one more record at the end. False: there is no more.
  [[nodiscard]] bool grow() noexcept;

  std::uint8_t* const memory_;
  const std::size_t bytes_;
  const std::string path_;
  const bool keeps_first_;
  std::uint64_t written_ = 0;
  std::size_t slot_ = 0;      // for the next one
  std::size_t room_ = 0;      // slots that have storage
  std::size_t capacity_ = 0;  // slots that may have
};

}  // namespace weft::check
