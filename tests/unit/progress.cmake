weft_add_test(progress_test
  WAITS
  LABELS unit
  SOURCES progress_doubt_test.cc progress_lane_test.cc progress_posts_test.cc
  DEPS weft_progress weft_io weft_proto Threads::Threads)
