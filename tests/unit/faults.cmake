weft_add_test(faults_test LABELS unit SOURCES faults_file_test.cc faults_objects_test.cc faults_replay_test.cc
              faults_test.cc DEPS weft_faults)
