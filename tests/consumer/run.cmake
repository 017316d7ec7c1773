# Installs the build into a fresh prefix, moves nothing by hand, then builds and runs what a user would
# against it: the consumer, and the examples.
# Variables: LIBDIR (lib or lib64, as installed), BUILD (our build folder), SOURCE (the project's), WORK (scratch), GENERATOR, PREFIX_PATH,
# PYTHON (one with libclang).
file(REMOVE_RECURSE "${WORK}")
function(step)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "failed: ${ARGN}")
  endif()
endfunction()
function(build_project folder name)  # further arguments: for CMake
  step(${CMAKE_COMMAND} -S "${SOURCE}/${folder}" -B "${WORK}/${name}" -G "${GENERATOR}" -DCMAKE_BUILD_TYPE=Release
       "-DCMAKE_PREFIX_PATH=${WORK}/prefix;${PREFIX_PATH}" ${ARGN})
  step(${CMAKE_COMMAND} --build "${WORK}/${name}")
endfunction()

step(${CMAKE_COMMAND} --install "${BUILD}" --prefix "${WORK}/prefix")

build_project(tests/consumer consumer "-DPYTHON=${PYTHON}")
step("${WORK}/consumer/consumer")
step("${WORK}/consumer/every_function")

# The runtime, on a machine without LibTorch: from C and C++, by CMake and by pkg-config.
set(no_torch -DCMAKE_DISABLE_FIND_PACKAGE_Torch=ON)
set(classified "${WORK}/prefix/share/sape2/models/cifar10-sape2-rel-k.safetensors" "${SOURCE}/examples/images/ship.png")
function(expect_ship)
  execute_process(COMMAND ${ARGN} ${classified} RESULT_VARIABLE code OUTPUT_VARIABLE said)
  if(NOT code EQUAL 0 OR NOT said MATCHES "^ *9[0-9][.][0-9]+ %  ship\n")
    message(FATAL_ERROR "${ARGN} left with ${code} and said: ${said}")
  endif()
endfunction()
build_project(examples/c examples_c ${no_torch})
expect_ship("${WORK}/examples_c/classify")
build_project(examples/cpp/infer examples_infer ${no_torch})
expect_ship("${WORK}/examples_infer/classify")
set(ENV{PKG_CONFIG_PATH} "${WORK}/prefix/${LIBDIR}/pkgconfig")
foreach(kind dynamic static)
  set(how "")
  set(link "")
  if(kind STREQUAL static)
    set(how --static)
    set(link -static)
  endif()
  execute_process(COMMAND pkg-config --cflags --libs ${how} sape2-images sape2-infer
                  OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(flags UNIX_COMMAND "${flags}")
  step(cc ${link} "${SOURCE}/examples/c/classify.c" ${flags} -o "${WORK}/classify-${kind}")
  expect_ship(env "LD_LIBRARY_PATH=${WORK}/prefix/${LIBDIR}" "${WORK}/classify-${kind}")
endforeach()
# A component that does not exist is refused by name.
file(WRITE "${WORK}/odd/CMakeLists.txt"
     "cmake_minimum_required(VERSION 3.24)\nproject(odd LANGUAGES CXX)\nfind_package(sape2 REQUIRED COMPONENTS infr)\n")
execute_process(COMMAND ${CMAKE_COMMAND} -S "${WORK}/odd" -B "${WORK}/odd/build" -G "${GENERATOR}"
                        "-DCMAKE_PREFIX_PATH=${WORK}/prefix"
                RESULT_VARIABLE code OUTPUT_QUIET ERROR_VARIABLE sentence)
if(code EQUAL 0 OR NOT sentence MATCHES "has no component 'infr'")
  message(FATAL_ERROR "find_package answered an unknown component with: ${sentence}")
endif()

build_project(examples/cpp examples)
step("${WORK}/examples/own_block" 20)
step("${WORK}/examples/classify" "${WORK}/prefix/share/sape2/models/cifar10-sape2-rel-k.safetensors"
     "${SOURCE}/examples/images/ship.png")
# A mistake is one sentence and a non-zero exit code.
execute_process(COMMAND "${WORK}/examples/classify" "${WORK}/none.safetensors" none.png
                RESULT_VARIABLE code ERROR_VARIABLE sentence)
if(NOT code EQUAL 1 OR NOT sentence MATCHES "^classify: [^\n]*none.safetensors[^\n]*\n$")
  message(FATAL_ERROR "classify answered a missing model with exit code ${code} and '${sentence}'")
endif()
