# Installs headers, libraries, the CMake package behind find_package(sape2), and what pkg-config knows.
include(CMakePackageConfigHelpers)
set(SAPE2_PACKAGE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/sape2")

if(NOT SAPE2_RUNTIME_ONLY)
  # The one target users link: every library layer, so that whatever header they include links.
  add_library(sape2_all INTERFACE)
  set_target_properties(sape2_all PROPERTIES EXPORT_NAME sape2)
  target_link_libraries(sape2_all INTERFACE sape2_serve sape2_explain sape2_study sape2_train sape2_data sape2_onnx sape2_io
                                            sape2_nn sape2_ops sape2_infer sape2_c)
  add_library(sape2::sape2 ALIAS sape2_all)
  install(TARGETS sape2_all EXPORT sape2-targets)
  install(EXPORT sape2-targets NAMESPACE sape2:: DESTINATION "${SAPE2_PACKAGE_DIR}")
  install(FILES "${PROJECT_SOURCE_DIR}/cmake/CudaToolkit.cmake" "${PROJECT_SOURCE_DIR}/cmake/Sape2Torch.cmake"
          DESTINATION "${SAPE2_PACKAGE_DIR}")
endif()

if(TARGET sape2_kernels_cuda)
  set(SAPE2_HAVE_CUDA_KERNELS 1)
else()
  set(SAPE2_HAVE_CUDA_KERNELS 0)
endif()
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/" "${PROJECT_BINARY_DIR}/include/"
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(EXPORT sape2-runtime-targets NAMESPACE sape2:: DESTINATION "${SAPE2_PACKAGE_DIR}")
configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/sape2-config.cmake.in" "${PROJECT_BINARY_DIR}/sape2-config.cmake"
  INSTALL_DESTINATION "${SAPE2_PACKAGE_DIR}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/sape2-config-version.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/sape2-config.cmake" "${PROJECT_BINARY_DIR}/sape2-config-version.cmake"
        DESTINATION "${SAPE2_PACKAGE_DIR}")

# sape2-infer.pc and sape2-images.pc. Their prefix is where they lie: an installed tree can be moved.
file(RELATIVE_PATH SAPE2_PC_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
foreach(name infer images)
  if(TARGET sape2_${name}_c)
    configure_file("${PROJECT_SOURCE_DIR}/cmake/sape2-${name}.pc.in" "${PROJECT_BINARY_DIR}/sape2-${name}.pc" @ONLY)
    install(FILES "${PROJECT_BINARY_DIR}/sape2-${name}.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
  endif()
endforeach()
