# Films, as users serve and show them. SDL2 and X11 keep memory until the end, which is no leak of
# ours, so sanitizers look at films without a window only.
if(TARGET weft_video_program AND Python3_FOUND AND NOT WEFT_SANITIZE STREQUAL "thread")
  set(has_window 0)
  if(WEFT_SDL_FOUND AND NOT WEFT_SANITIZE)
    set(has_window 1)
  endif()
  weft_add_script_test(
    loopback_video
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/video_test.py"
            "$<TARGET_FILE:weft_video_program>" ${has_window}
    LABELS loopback
    TIMEOUT 300
    WAITS)
  set(video_files_env "")
  if(TARGET loopback_failing_fsync)
    list(APPEND video_files_env "WEFT_TEST_FAILING_FSYNC=$<TARGET_FILE:loopback_failing_fsync>")
  endif()
  weft_add_script_test(
    loopback_video_files
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/video_files_test.py"
            "$<TARGET_FILE:weft_video_program>"
    LABELS loopback
    TIMEOUT 300
    WAITS
    ENV ${video_files_env})
  add_dependencies(weft_tests weft_video_program weft_data)
endif()
