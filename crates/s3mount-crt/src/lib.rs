//! ObjectClient on the AWS CRT; all of its FFI
