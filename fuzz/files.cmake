weft_add_fuzzer(fuzz_files_messages
  SOURCES files_messages.cc
  DEPS weft_files
  CORPUS corpus/files_messages)
weft_add_fuzzer(fuzz_files_film
  SOURCES files_film.cc
  DEPS weft_video
  CORPUS corpus/files_film)
