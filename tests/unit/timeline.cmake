weft_add_test(timeline_test LABELS unit SOURCES timeline_book_test.cc timeline_file_test.cc timeline_story_test.cc timeline_waits_test.cc
                                              ../../src/check/module/record_file.cc
              DEPS weft_timeline)
