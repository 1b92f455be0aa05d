weft_add_fuzzer(fuzz_store_messages
  SOURCES store_messages.cc
  DEPS weft_store
  CORPUS corpus/store_messages)
weft_add_fuzzer(fuzz_video_film
  SOURCES video_film.cc
  DEPS weft_video
  CORPUS corpus/video_film)
