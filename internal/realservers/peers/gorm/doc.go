// Package gorm shows that a program with an ORM, which knows nothing of the fence, is
// refused by a protected table, and gets through inside a transaction that the fence has
// admitted. It has tests only.
//
// # Guarantees
//
// None: nothing of it is part of the product.
//
// # Not guaranteed
//
// That other ORMs behave alike.
package gorm
