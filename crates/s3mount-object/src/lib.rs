//! Vocabulary and contract of the object store: ObjectClient, ObjectId, ByteRange, ObjectError
