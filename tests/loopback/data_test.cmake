# The data server and its client, as users run them.
find_package(Python3 COMPONENTS Interpreter)
if(TARGET weft_data AND Python3_FOUND AND NOT WEFT_SANITIZE STREQUAL "thread")
  # A client by docs/data-protocol.md alone: linked with rdma-core's libraries, run on Weft's.
  add_executable(loopback_data_client EXCLUDE_FROM_ALL "${CMAKE_CURRENT_LIST_DIR}/data_client.c")
  target_link_libraries(loopback_data_client PRIVATE "${WEFT_FILES_RDMACM}" "${WEFT_FILES_IBVERBS}")
  set(helpers loopback_data_client)
  set(helper_env "WEFT_TEST_DATA_CLIENT=$<TARGET_FILE:loopback_data_client>"
                 "WEFT_TEST_VERBS_DIR=$<TARGET_FILE_DIR:weft_rdmacm>")
  find_package(PkgConfig QUIET)
  pkg_check_modules(WEFT_FUSE QUIET IMPORTED_TARGET fuse3)
  if(WEFT_FUSE_FOUND)
    add_executable(loopback_faulty_fs EXCLUDE_FROM_ALL "${CMAKE_CURRENT_LIST_DIR}/faulty_fs.c")
    target_link_libraries(loopback_faulty_fs PRIVATE PkgConfig::WEFT_FUSE)
    list(APPEND helpers loopback_faulty_fs)
    list(APPEND helper_env "WEFT_TEST_FAULTY_FS=$<TARGET_FILE:loopback_faulty_fs>")
  endif()
  set_target_properties(${helpers} PROPERTIES RUNTIME_OUTPUT_DIRECTORY
                                              "${WEFT_TEST_OUTPUT_DIRECTORY}")
  set(faults_env ${helper_env})
  if(NOT WEFT_SANITIZE) # whose runtime has to be loaded first
    add_library(loopback_lost_race MODULE EXCLUDE_FROM_ALL "${CMAKE_CURRENT_LIST_DIR}/lost_race.c")
    set_target_properties(loopback_lost_race PROPERTIES LIBRARY_OUTPUT_DIRECTORY
                                                        "${WEFT_TEST_OUTPUT_DIRECTORY}")
    list(APPEND helpers loopback_lost_race)
    list(APPEND faults_env "WEFT_TEST_LOST_RACE=$<TARGET_FILE:loopback_lost_race>")
  endif()
  weft_add_script_test(
    loopback_data
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/data_test.py"
            "$<TARGET_FILE:weft_data>"
    LABELS loopback
    TIMEOUT 300
    ENV ${helper_env})
  weft_add_script_test(
    loopback_data_faults
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/data_faults_test.py"
            "$<TARGET_FILE:weft_data>"
    LABELS loopback
    TIMEOUT 300
    ENV ${faults_env})
  # `./test.sh --all` runs it.
  if(NOT WEFT_SANITIZE)
    weft_add_script_test(
      loopback_data_long
      COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/data_long_test.py"
              "$<TARGET_FILE:weft_data>"
      LABELS loopback long
      TIMEOUT 1500
      SERIAL)
  endif()
  # Exit 0 means that what is there is exactly what was there.
  weft_add_script_test(
    loopback_data_trust
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/data_trust_test.py"
            "$<TARGET_FILE:weft_data>"
    LABELS loopback
    TIMEOUT 300)
  weft_add_script_test(
    loopback_data_identity
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/data_identity_test.py"
            "$<TARGET_FILE:weft_data>"
    LABELS loopback
    TIMEOUT 180)
  weft_add_script_test(
    loopback_data_status
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/data_status_test.py"
            "$<TARGET_FILE:weft_data>"
    LABELS loopback
    TIMEOUT 180)
  # What a copy takes, and what it says that it does.
  weft_add_script_test(
    loopback_data_plan
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/data_plan_test.py"
            "$<TARGET_FILE:weft_data>"
    LABELS loopback
    TIMEOUT 180)
  weft_add_script_test(
    loopback_data_lists
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/data_lists_test.py"
            "$<TARGET_FILE:weft_data>"
    LABELS loopback
    TIMEOUT 180)
  weft_add_script_test(
    loopback_data_archive
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/data_archive_test.py"
            "$<TARGET_FILE:weft_data>"
    LABELS loopback
    TIMEOUT 180)
  # What wants too much, or speaks another version.
  weft_add_script_test(
    loopback_data_refusal
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/data_refusal_test.py"
            "$<TARGET_FILE:weft_data>"
    LABELS loopback
    TIMEOUT 180)
  weft_add_script_test(
    loopback_data_holes
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/data_holes_test.py"
            "$<TARGET_FILE:weft_data>"
    LABELS loopback
    TIMEOUT 180)
  # ... beside random changes of the source and of the server.
  set(model_env "")
  if(TARGET weft_mount_program)
    set(model_env "WEFT_TEST_MOUNT=$<TARGET_FILE:weft_mount_program>")
  endif()
  weft_add_script_test(
    loopback_data_model
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/data_model_test.py"
            "$<TARGET_FILE:weft_data>"
    LABELS loopback
    TIMEOUT 180
    ENV ${model_env})
  weft_add_script_test(
    loopback_data_disks
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/data_disks_test.py"
            "$<TARGET_FILE:weft_data>"
    LABELS loopback
    TIMEOUT 180)
  # Peers that break the rules, by hand over plain sockets.
  set(hostile_env "")
  if(NOT WEFT_SANITIZE) # whose runtime has to be loaded first
    add_library(loopback_swap MODULE EXCLUDE_FROM_ALL "${CMAKE_CURRENT_LIST_DIR}/swap_after_stat.c")
    set_target_properties(loopback_swap PROPERTIES LIBRARY_OUTPUT_DIRECTORY
                                                   "${WEFT_TEST_OUTPUT_DIRECTORY}")
    list(APPEND helpers loopback_swap)
    list(APPEND hostile_env "WEFT_TEST_SWAP=$<TARGET_FILE:loopback_swap>")
  endif()
  if(TARGET weft_mount_program)
    list(APPEND hostile_env "WEFT_TEST_MOUNT=$<TARGET_FILE:weft_mount_program>")
    list(APPEND helpers weft_mount_program)
  endif()
  weft_add_script_test(
    loopback_data_hostile
    COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/data_hostile_test.py"
            "$<TARGET_FILE:weft_data>"
    LABELS loopback
    TIMEOUT 300
    WAITS
    ENV ${hostile_env})
  if(NOT WEFT_SANITIZE) # whose runtime has to be loaded first
    add_library(loopback_kill MODULE EXCLUDE_FROM_ALL "${CMAKE_CURRENT_LIST_DIR}/kill_before_call.c")
    set_target_properties(loopback_kill PROPERTIES LIBRARY_OUTPUT_DIRECTORY
                                                   "${WEFT_TEST_OUTPUT_DIRECTORY}")
    list(APPEND helpers loopback_kill)
    weft_add_script_test(
      loopback_data_kill
      COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/data_kill_test.py"
              "$<TARGET_FILE:weft_data>"
      LABELS loopback
      TIMEOUT 300
      ENV "WEFT_TEST_KILL=$<TARGET_FILE:loopback_kill>")
    add_library(loopback_failing_fsync MODULE EXCLUDE_FROM_ALL
                "${CMAKE_CURRENT_LIST_DIR}/failing_fsync.c")
    set_target_properties(loopback_failing_fsync PROPERTIES LIBRARY_OUTPUT_DIRECTORY
                                                            "${WEFT_TEST_OUTPUT_DIRECTORY}")
    add_library(loopback_record_calls MODULE EXCLUDE_FROM_ALL
                "${CMAKE_CURRENT_LIST_DIR}/record_calls.c")
    set_target_properties(loopback_record_calls PROPERTIES LIBRARY_OUTPUT_DIRECTORY
                                                           "${WEFT_TEST_OUTPUT_DIRECTORY}")
    list(APPEND helpers loopback_failing_fsync loopback_record_calls)
    weft_add_script_test(
      loopback_data_durable
      COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/data_durable_test.py"
              "$<TARGET_FILE:weft_data>"
      LABELS loopback
      TIMEOUT 300
      ENV "WEFT_TEST_FAILING_FSYNC=$<TARGET_FILE:loopback_failing_fsync>"
          "WEFT_TEST_RECORD_CALLS=$<TARGET_FILE:loopback_record_calls>")
    # A server beside which nobody waits for the disk.
    add_library(loopback_slow_disk MODULE EXCLUDE_FROM_ALL "${CMAKE_CURRENT_LIST_DIR}/slow_disk.c")
    set_target_properties(loopback_slow_disk PROPERTIES LIBRARY_OUTPUT_DIRECTORY
                                                        "${WEFT_TEST_OUTPUT_DIRECTORY}")
    list(APPEND helpers loopback_slow_disk)
    weft_add_script_test(
      loopback_data_slow_disk
      COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/data_slow_disk_test.py"
              "$<TARGET_FILE:weft_data>"
      LABELS loopback
      TIMEOUT 300
      ENV "WEFT_TEST_SLOW_DISK=$<TARGET_FILE:loopback_slow_disk>")
    weft_add_script_test(
      loopback_data_crowd
      COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/data_crowd_test.py"
              "$<TARGET_FILE:weft_data>"
      LABELS loopback
      TIMEOUT 300)
  endif()
  add_dependencies(weft_tests weft_data ${helpers})
endif()
